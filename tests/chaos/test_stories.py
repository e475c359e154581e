"""Single stories in virtual time: the production controller and agents' state on the in-memory cluster.

Each plays with the shipped settings unless it says otherwise, and every invariant of chaos/simulate is
checked after each write.
"""

from __future__ import annotations

import pytest

from chaos.cluster.containers import Exit
from chaos.simulate import lines
from chaos.simulate.jobs import Job, Kind, Storage
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.reading import is_suspended
from chaos.simulate.world import Setup, Simulation
from detectors.contract import Fault
from recover.api import Blame, Outcome, Phase
from recover.kube.cluster import PYTORCHJOBS
from recover.model import Mode
from recover.settings import Settings

OBSERVE = Setup(settings=Settings(mode=Mode.OBSERVE))
HANGS_SOON = {"rekindle.dev/hang-timeout": "60s"}
"""A dead peer shows as a hang of all others; by default that takes ten minutes."""


def over(sim: Simulation, job: str = "llm") -> bool:
    """That job's last recovery has ended."""
    found = sim.recoveries(job)
    return bool(found) and not found[-1].active


def reasons(sim: Simulation, outcome: Outcome) -> set[str]:
    return {r.reason for i in sim.incidents() for r in i.status.actions if r.outcome is outcome}


def touched(sim: Simulation) -> list[str]:
    """What the controller wrote on other people's objects."""
    return [w for w in sim.writes() if w.split()[1].split("/")[0] in ("nodes", "jobs", "pytorchjobs", "pods")]


def resumes(sim: Simulation, job: str = "llm") -> int:
    """How often the controller has started that job."""
    return sum(1 for r in sim.recoveries(job) for t in r.status.phases if t.phase is Phase.RESUMING)


def nodes_of(sim: Simulation, job: str = "llm") -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in sim.pods(job)}


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
        assert len(touched(sim)) == 3

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


# --- dead nodes -------------------------------------------------------------------------------------------


def test_a_dead_node_whose_pods_hold_no_volume_is_given_up_after_300_s_of_silence() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(storage=Storage.SCRATCH, annotations=HANGS_SOON))
        await sim.passes(65)
        died_at = sim.clock.now()
        await sim.crash_node("n2")
        await sim.until(lambda: over(sim), within_s=900)
        status = sim.recovery().status
        assert status.phase is Phase.SUCCEEDED
        assert Phase.FENCING in [t.phase for t in status.phases]
        assert 300 < (sim.clock.now() - died_at).total_seconds() < 480
        before = gang.step
        await comes_to_rest(sim)
        assert gang.step > before + 300

    play(story)


def test_a_dead_node_whose_pod_holds_a_claim_blocks_until_a_person_says_that_it_is_off() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(storage=Storage.CLAIM, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.passes(3600)
        assert sim.recovery().status.phase is Phase.BLOCKED
        assert sim.recovery().status.reason == "NeedsFencingProof"
        stuck_at = gang.step
        await sim.person.out_of_service("n2")
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert gang.step > stuck_at

    play(story)


def test_a_dead_node_that_boots_again_is_the_proof_that_its_pods_are_gone() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(storage=Storage.CLAIM, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.passes(1200)
        stuck_at = gang.step
        await sim.boot_node("n2")
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert sim.cordoned() == []
        assert gang.step > stuck_at

    play(story)


# --- limits and people ------------------------------------------------------------------------------------


def test_the_same_fault_on_5_of_100_nodes_within_5_minutes_trips_the_brake() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        for node in ("n10", "n20", "n30", "n40", "n50"):
            sim.kernel(node, lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        assert len(sim.cordoned()) <= 5
        brakes = [i for i in sim.incidents() if i.metadata.name.startswith("fleet-brake")]
        assert len(brakes) == 1
        sim.kernel("n60", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        assert "n60" not in sim.cordoned()
        assert "FleetBrake" in reasons(sim, Outcome.REFUSED)

    play(story, Setup(nodes=100, heartbeat_s=20.0, tick_s=20.0))


def test_a_person_who_uncordons_a_node_wins_and_is_remembered_over_a_restart() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: over(sim), within_s=60)
        await sim.person.uncordon("n2")
        await sim.passes(5)
        node = sim.node("n2")
        assert sim.cordoned() == []
        assert node["spec"].get("taints", []) == []
        assert "rekindle.dev/quarantined-by" not in node["metadata"]["annotations"]
        await sim.restart_controller()
        await comes_to_rest(sim)
        assert sim.cordoned() == []
        assert len(sim.recoveries()) == 1
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(5)
        assert sim.cordoned() == ["n2"]

    play(story)


def test_a_cordon_and_a_taint_of_somebody_else_stay_as_they_are() -> None:
    async def story(sim: Simulation) -> None:
        taint = {"key": "example.com/maintenance", "value": "disk", "effect": "NoSchedule"}
        await sim.person.edit_node("n2", {"spec": {"unschedulable": True, "taints": [taint]}})
        await sim.passes(5)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(5)
        assert [t["key"] for t in sim.node("n2")["spec"]["taints"]] == [
            taint["key"],
            "rekindle.dev/unhealthy",
        ]
        await sim.person.edit_node("n2", {"spec": {"taints": [taint]}})
        await comes_to_rest(sim)
        assert sim.node("n2")["spec"] == {"unschedulable": True, "taints": [taint]}

    play(story)


def test_a_taint_that_a_person_sets_while_our_view_is_old_survives_the_quarantine() -> None:
    async def story(sim: Simulation) -> None:
        taint = {"key": "example.com/maintenance", "value": "disk", "effect": "NoSchedule"}
        await sim.passes(5)
        sim.client.disturbance.watch_lag_s = 3.0
        await sim.passes(5)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(2.9)
        await sim.person.edit_node("n2", {"spec": {"taints": [taint]}})
        await sim.passes(10)
        assert [t["key"] for t in sim.node("n2")["spec"]["taints"]] == [
            taint["key"],
            "rekindle.dev/unhealthy",
        ]
        await comes_to_rest(sim)

    play(story)


def test_a_held_job_is_not_stopped_until_the_hold_ends() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(annotations={"rekindle.dev/hold": "true"}))
        await sim.passes(65)
        sim.crash_rank(1, Exit(1))
        await sim.passes(600)
        assert sim.recoveries() == []
        assert reasons(sim, Outcome.REFUSED) == {"Held"}
        await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": None}}})
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert gang.step > 100

    play(story)


def test_a_job_that_a_person_suspends_is_not_started_again() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        await sim.person.edit_job({"spec": {"runPolicy": {"suspend": True}}})
        await sim.passes(5)
        stopped_at = gang.step
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(3600)
        assert sim.recoveries() == []
        assert gang.step == stopped_at

    play(story)


def test_a_job_that_is_deleted_while_it_is_recovered_ends_its_recovery() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(storage=Storage.CLAIM, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.until(lambda: bool(sim.recoveries()), within_s=600)
        await sim.person.delete_job()
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.FAILED
        assert sim.recovery().status.reason == "JobGone"

    play(story)


# --- how a recovery goes on and ends ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", Kind)
def test_a_gang_of_which_one_rank_hangs_is_restarted_once(kind: Kind) -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=kind, annotations=HANGS_SOON))
        await sim.passes(65)
        sim.hang_rank(2)
        await sim.passes(10)
        stuck_at = gang.step
        await comes_to_rest(sim)
        assert sim.cordoned() == []
        assert sim.recovery().spec.fault is Fault.HANG
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert gang.step > stuck_at + 300

    play(story)


def test_a_gang_whose_steps_never_come_is_never_succeeded_and_escalates_by_its_deadline() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        gang.silent = True
        sim.crash_rank(1, Exit(1))
        await comes_to_rest(sim)
        status = sim.recovery().status
        assert status.phase is Phase.ESCALATED
        assert status.reason in ("NoSteps", "CrashLoop")
        assert status.attempt == 3
        assert Phase.SUCCEEDED not in [t.phase for t in status.phases]

    play(story)


def test_a_gang_that_crashes_at_every_start_ends_escalated_and_suspended() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        gang.crashes_at_start = True
        sim.crash_rank(1, Exit(1))
        await comes_to_rest(sim)
        status = sim.recoveries()[-1].status
        assert status.phase is Phase.ESCALATED
        assert status.reason == "CrashLoop"
        assert is_suspended(sim.cluster.store.read(PYTORCHJOBS, "llm", "ml").body)
        assert resumes(sim) == 3

    play(story)


def test_two_faults_in_a_row_are_two_recoveries_and_one_cordon_each_within_the_limit() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: over(sim), within_s=60)
        await sim.passes(60)
        sim.crash_rank(0, Exit.out_of_memory())
        await comes_to_rest(sim)
        assert [r.status.phase for r in sim.recoveries()] == [Phase.SUCCEEDED] * 2
        assert sim.cordoned() == ["n1"]
        assert gang.step > 300

    play(story)


def test_a_second_node_that_fails_before_the_resume_joins_and_is_avoided_even_without_a_cordon() -> None:
    """One of six nodes may be quarantined; the gang does not go back to the other one all the same."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(scanned=True, storage=Storage.CLAIM))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.CHOOSING), within_s=10, every_s=0.05)
        sim.kernel("n3", lines.FALLEN_OFF_THE_BUS)
        await comes_to_rest(sim)
        status = sim.recovery().status
        assert status.phase is Phase.SUCCEEDED
        assert status.attempt == 1
        assert set(status.avoid_nodes) == {"n2", "n3"}
        assert not nodes_of(sim) & {"n2", "n3"}
        assert sim.cordoned() == ["n2"]
        assert reasons(sim, Outcome.REFUSED) == {"BudgetExhausted"}

    play(story)


def test_a_fault_right_after_the_resume_is_the_second_attempt_of_the_same_recovery() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: sim.recovery_is(Phase.VERIFYING), within_s=60)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await comes_to_rest(sim)
        status = sim.recovery().status
        assert status.phase is Phase.SUCCEEDED
        assert status.attempt == 2
        assert sim.cordoned() == ["n2"]
        assert resumes(sim) == 2

    play(story)


def test_two_gangs_on_one_bad_node_both_move() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(name="llm", ranks=4))
        await sim.submit(Job(name="vision", ranks=4, kind=Kind.JOB))
        await sim.passes(65)
        assert "n2" in nodes_of(sim, "llm") & nodes_of(sim, "vision")
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await comes_to_rest(sim)
        for job in ("llm", "vision"):
            assert sim.recovery(job).status.phase is Phase.SUCCEEDED
            assert "n2" not in nodes_of(sim, job)
        assert sim.cordoned() == ["n2"]

    play(story, Setup(nodes=5, gpus_per_node=2))


def test_a_pod_that_tolerates_every_taint_still_does_not_come_back_to_the_bad_node() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(tolerations=[{"operator": "Exists"}]))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert "n2" not in nodes_of(sim)

    play(story)


# --- the controller dies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(1, 41, 3))
def test_a_controller_that_dies_at_any_write_forgets_nothing_and_repeats_nothing(place: int) -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(scanned=True, storage=Storage.CLAIM))
        await sim.passes(65)
        sim.crashes.crash_in = place
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(30)
        if not sim.controller_lives:
            await sim.start_controller()
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert sim.recovery().status.attempt == 1
        assert sim.cordoned() == ["n2"]
        assert resumes(sim) == 1
        assert gang.step > 300

    play(story)
