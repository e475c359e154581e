"""Stories in virtual time: how a recovery continues and ends, even if the controller dies.

Each story plays with the shipped settings unless it sets others, and every invariant of chaos/simulate is
checked after each write.
"""

from __future__ import annotations

import pytest

from chaos.cluster.containers import Exit
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import NAMESPACE, Job, Kind, Storage
from chaos.simulated.reading import is_suspended
from chaos.simulated.setup import Setup
from detectors.wire.contract import Fault
from recover.api import Outcome, Phase
from recover.k8s.kinds import CONFIGMAPS, PYTORCHJOBS
from tests.chaos.simulate.telling import HANGS_SOON, nodes_of, over, reasons, resumes

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


@pytest.mark.parametrize("kind", Kind)
def test_what_the_ranks_were_told_goes_with_the_job(kind: Kind) -> None:
    """Otherwise a new job with that name would begin where the old one was resumed."""

    def told(sim: Simulation) -> list[str]:
        return [found["metadata"]["name"] for found in sim.cluster.store.objects(CONFIGMAPS, NAMESPACE)]

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(kind=kind))
        await sim.passes(65)
        sim.crash_rank(1, Exit(1))
        await comes_to_rest(sim)
        assert told(sim) == [f"llm-rekindle-{kind.value}"]

        await sim.person.delete_job()
        await sim.passes(1)

        assert told(sim) == []

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


@pytest.mark.parametrize("kind", Kind)
def test_a_gang_that_only_one_node_brings_down_leaves_the_node_after_its_second_failure_there(
    kind: Kind,
) -> None:
    """No source shows the fault of n2, and the agent has seen none."""

    def running_on(sim: Simulation) -> list[str]:
        return [pod["spec"]["nodeName"] for pod in sim.pods() if pod["status"]["phase"] == "Running"]

    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=kind, max_restarts=9))
        for failures in (1, 2):
            await sim.passes(200)
            sim.crash_rank(running_on(sim).index("n2"), Exit(1))
            await comes_to_rest(sim)
            assert len(sim.recoveries()) == failures
        assert "n2" not in running_on(sim)
        assert sim.cordoned() == []
        assert gang.step > 300

    play(story)


def test_a_second_node_that_fails_before_the_resume_joins_and_is_avoided_even_without_a_cordon() -> None:
    """Only one of six nodes may be quarantined. The gang still avoids the other broken node."""

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


def test_a_recovery_runs_the_real_scan_and_begins_from_what_is_complete() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(ranks=2, scanned=True, storage=Storage.CLAIM))
        await sim.passes(190)
        complete = gang.training.checkpoints.newest
        gang.training.checkpoints.complete[complete] = False
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        choice = sim.recovery().status.checkpoint
        assert choice is not None
        assert (choice.verified, choice.step) == (True, complete - 10)
        assert [rejected.step for rejected in choice.rejected][-1] == complete

    play(story)
