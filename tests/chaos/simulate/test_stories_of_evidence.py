"""Stories in virtual time: the first reconciles, modes and consent, and whose evidence counts.

Each story plays with the shipped settings unless it sets others, and every invariant of chaos/simulate is
checked after each write.
"""

from __future__ import annotations

import pytest

from chaos.cluster.containers import Exit
from chaos.simulate.acts.faults import CrashesInARow
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job, Kind, Storage
from chaos.simulated.setup import Setup
from recover.api import Blame, Outcome, Phase
from recover.api.reasons import Reason
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.simulate.telling import OBSERVE, nodes_of, over, reasons, resumes, touched


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("scanned", [True, False], ids=["with a scan", "without a scan"])
def test_an_xid_79_takes_the_node_out_and_the_gang_resumes_elsewhere(kind: Kind, scanned: bool) -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=kind, scanned=scanned, storage=Storage.CLAIM))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: over(sim), within_s=60)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert sim.recovery().status.resumed_step == 11
        assert sim.cordoned() == ["n2"]
        assert "n2" not in nodes_of(sim)
        await comes_to_rest(sim)
        assert gang.step > 300

    play(story)


def test_in_observe_mode_nothing_is_written_on_nodes_and_jobs_and_the_incident_says_what_would_be() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(10)
        sim.crash_rank(1, Exit(1))
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert sim.recoveries() == []
        assert reasons(sim, Outcome.WOULD) == {"ObserveMode"}
        described = {r.action for i in sim.incidents() for r in i.status.actions}
        assert described == {"quarantine-node", "restart-gang"}

    play(story, OBSERVE)


def test_a_job_that_did_not_opt_in_is_left_alone_while_its_node_is_cordoned() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(opted_in=False))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await comes_to_rest(sim)
        assert touched(sim) == ["patch nodes/n2"]
        assert sim.recoveries() == []
        assert reasons(sim, Outcome.REFUSED) == {"NotOptedIn"}

    play(story)


# --- whose evidence counts --------------------------------------------------------------------------------


def test_a_tenant_that_prints_fault_lines_in_its_log_cordons_nothing_and_restarts_nobody() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        fake = lines.FALLEN_OFF_THE_BUS.text.format(pci="PCI:0000:18:00")
        for pod in sim.pods():
            sim.says(pod, fake)
            sim.says(pod, f"<6>{fake}")
        before = gang.step
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert sim.incidents() == []
        assert gang.step > before + 300

    play(story)


def test_a_program_that_is_called_like_the_driver_crashes_and_cordons_nothing() -> None:
    crash = (
        "{}[4711]: segfault at 0 ip 0 sp 0 error 6 in GPU has fallen off the bus.[32a83,7f1a740d2000+74000]"
    )

    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        for name in ("NVRM: GPU 18:0 ", "NVRM: Xid (): 7", "NVRM: Xid (PCI:"):
            sim.kernel("n2", lines.KernelText(crash.format(name), harm=lines.Harm.NONE))
        before = gang.step
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert sim.incidents() == []
        assert gang.step > before + 300

    play(story)


def test_a_crash_with_xid_45_on_every_node_of_the_gang_is_one_restart_and_no_cordon() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.crash_rank(2, Exit(1), says="ValueError: shapes do not match")
        for node in ("n1", "n2", "n3", "n4"):
            sim.kernel(node, lines.PREEMPTIVE_REMOVAL)
        await comes_to_rest(sim)
        assert sim.cordoned() == []
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert sim.recovery().status.attempt == 1
        (incident,) = sim.incidents()
        assert incident.status.blame is Blame.APPLICATION

    play(story)


@pytest.mark.parametrize("controller_dies", [False, True])
@pytest.mark.parametrize("late_s", [10.0, 40.0])
def test_a_culprit_that_its_agent_tells_of_late_is_blamed_after_all_and_left_once_more(
    late_s: float, controller_dies: bool
) -> None:
    """The gang has returned to the culprit's node meanwhile, and its recovery is verifying the start, or has
    succeeded."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kill_agent("n3")
        sim.kernel("n3", lines.FALLEN_OFF_THE_BUS)
        sim.crash_rank(0, Exit(1), says="RuntimeError: NCCL error")
        await sim.passes(late_s)
        sim.start_agent("n3")
        if controller_dies:
            await sim.restart_controller(1.0)
        await comes_to_rest(sim)
        assert sim.recoveries()[-1].status.phase is Phase.SUCCEEDED
        assert resumes(sim) == 2
        assert sim.cordoned() == ["n3"]
        assert "n3" not in nodes_of(sim)
        (own,) = (i for i in sim.incidents() if i.spec.gang is not None)
        (fault,) = (i for i in sim.incidents() if i.spec.node)
        assert (own.status.superseded_by, own.status.blamed_node) == (fault.metadata.name, "n3")
        assert all(code in own.status.summary for code in ("xid-79", "exit-1")), "also what it said at first"

    play(story)


def test_a_storm_of_ten_thousand_lines_is_one_cordon_and_few_writes() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        for _ in range(100):
            for _ in range(100):
                sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
            await sim.passes(0.1)
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n2"]
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        agent_writes = [a for a in sim.cluster.store.audit if a.user == "agent:n2" and a.changed]
        assert len(agent_writes) < 20
        assert len(touched(sim)) == 4, "cordon, stop, start, and what the start had put there"

    play(story)


def test_what_a_node_showed_before_its_boot_never_acts_though_its_agent_is_late() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        sim.kill_controller()
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(20)
        await sim.crash_node("n2")
        await sim.passes(10)
        await sim.boot_node("n2")
        sim.kill_agent("n2")
        await sim.start_controller()
        await sim.passes(60)
        sim.start_agent("n2")
        await comes_to_rest(sim)
        assert touched(sim) == []

    play(story)


def test_promotion_to_recover_does_not_act_on_what_was_seen_before_it() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(10)
        assert reasons(sim, Outcome.WOULD) == {"ObserveMode"}
        sim.change_settings(Settings(mode=Mode.RECOVER))
        await sim.restart_controller()
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert reasons(sim, Outcome.REFUSED) == {"StaleEvidence"}

    play(story, OBSERVE)


@pytest.mark.parametrize("lead_s", [-7200.0, -600.0, 600.0, 7200.0])
def test_a_gpu_that_dies_after_an_uncordon_is_seen_on_a_node_whose_clock_is_off(lead_s: float) -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(7300)  # the mode is older than the error of that clock
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=60)
        await sim.passes(300)
        await sim.person.uncordon("n2")
        await sim.passes(120)
        assert sim.cordoned() == []
        sim.kernel("n2", lines.BY_NAME["uncontained"])
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=60)
        await sim.person.uncordon("n2")
        await comes_to_rest(sim)
        assert sim.cordoned() == []

    play(story, Setup(clock_leads_s={"n2": lead_s}))


@pytest.mark.parametrize("lead_s", [0.0, -300.0])
def test_a_program_that_fails_again_and_again_after_a_contained_error_is_given_up_as_the_culprit(
    lead_s: float,
) -> None:
    """In seed 583 Rekindle took each crash within two minutes of the error's only line for a fault of the
    crash's node."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(60)
        sim.kernel("n2", lines.CONTAINED)
        crashes = CrashesInARow(at_s=0.0, job="llm", rank=1, ends=("abort",) * 6, says="")
        await crashes.play(sim)
        await comes_to_rest(sim)
        status = sim.recovery().status
        assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.CRASH_LOOP)
        assert [cause.blame for cause in status.causes] == [Blame.NODE, *[Blame.APPLICATION] * 4]
        suspects = [cause.node for cause in status.causes[1:]]
        assert suspects == ["", "n2", "n2", "n2"], "from the second failure of the program on"

    play(story, Setup(nodes=2, clock_leads_s={"n2": lead_s}))
