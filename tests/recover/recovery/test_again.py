"""A gang whose ranks never all ran has not failed: no attempt counts, no checkpoint is condemned, and
Rekindle places the gang again when there is a better place."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Coverage, CoverageState, Source
from detectors.wire.training import Edge, LogError
from recover.api import Phase, RecoveryStatus
from recover.api.reasons import Reason
from recover.model import Container, Mark, PodPhase
from tests.acting import acts, advanced, end_pods, look, only_recovery, recovering, scanned, start_pods, step
from tests.builders import Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import choice, excluded_in, faulted


def status(world: Worlds) -> RecoveryStatus:
    return only_recovery(world).status


def short(world: Worlds, waiting: int = 1, first_node: int = 4) -> Worlds:
    """Lets the ranks of a started gang begin, except that the scheduler reports for this number of ranks
    that it finds no place."""
    start_pods(world.later(2), first_node=first_node)
    pods = world.pods["llm-uid"]
    for uid, pod in sorted(pods.items(), key=lambda item: item[1].name)[-waiting:]:
        pods[uid] = msgspec.structs.replace(
            pod, node="", phase=PodPhase.PENDING, containers=(), unschedulable="0/8 nodes are available"
        )
    return world


def started(world: Worlds) -> Worlds:
    """Advances the recovery until it has started the gang, which then has no pods yet."""
    for _ in range(12):
        wrote = step(world)
        if "stop-gang" in wrote:
            end_pods(world)
        if "start-gang" in wrote:
            return world
        if status(world).phase is Phase.BLOCKED:
            world.later(look(world).requeue_after_s or 0)
    raise AssertionError(f"it is not started: {status(world)}")


def give_up_waiting(world: Worlds) -> None:
    """Lets the running ranks exit at the timeout of their rendezvous."""
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        if pod.phase is PodPhase.RUNNING:
            ended = Container(name="train", running=False, exit_code=1, finished_at=world.now)
            pods[uid] = msgspec.structs.replace(pod, phase=PodPhase.FAILED, containers=(ended,))


def test_ranks_that_waited_for_others_in_vain_are_no_attempt_however_often() -> None:
    world = cluster(nodes=8).running(gang()).crash(rank=1)
    for name in world.nodes:
        world.blind(name)
    started(recovering(world))
    for _ in range(6):
        short(world)
        step(world)
        give_up_waiting(world.later(600))
        recovering(world)
        step(world)
        started(world)

    assert status(world).uncounted == [1, 2, 3, 4, 5, 6]
    assert (status(world).phase, status(world).attempt) == (Phase.RESUMING, 7)
    assert status(world).suspects == ["n1"], "nodes where ranks waited are no suspects"


def test_they_condemn_no_checkpoint() -> None:
    """A rank that starts alone reads half of a sharded checkpoint, and reports that it could not load the
    checkpoint."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)
    step(world)
    scanned(world, choice(80))
    for _ in range(2):
        short(started(world))
        step(world)
        error = LogError(code="log-checkpoint", at=world.now, text="cannot load")
        for pod in world.pods["llm-uid"].values():
            if pod.phase is PodPhase.RUNNING:
                world.progress(pod, Edge.ENDED, at=world.now, first_error=error)
                rank = world.health[pod.node].status.pods[-1]
                rank = msgspec.structs.replace(rank, first_step=None, last_step=None, last_step_at=None)
                mine = msgspec.structs.replace(world.health[pod.node].status, pods=[rank])
                world.health[pod.node] = msgspec.structs.replace(world.health[pod.node], status=mine)
        give_up_waiting(world.later(600))
        recovering(world)
        step(world)
        world.scans.clear()
        advanced(world, Phase.CHOOSING)
        assert excluded_in(world) == []
        step(world)
        scanned(world, choice(80))


def test_a_program_that_fails_at_once_counts_although_other_ranks_are_still_being_created() -> None:
    """In a gang of 500 ranks, the first ranks have failed before the last ones have started."""
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    for _ in range(4):
        try:
            started(world)
        except AssertionError:
            break
        start_pods(world.later(2))
        pods = world.pods["llm-uid"]
        (last, *_) = [uid for uid, pod in pods.items() if pod.name == "llm-worker-3"]
        del pods[last]
        world.later(3).crash(rank=0, ago_s=1)
        recovering(world)
        step(world)

    assert status(world).uncounted == []
    assert (status(world).phase, status(world).reason) == (Phase.ESCALATED, Reason.CRASH_LOOP)


def test_between_two_starts_that_ended_so_more_and_more_time_passes_and_the_recovery_says_so() -> None:
    world = started(recovering(cluster(nodes=8).running(gang()).crash(rank=1)))
    pauses = []
    for _ in range(4):
        short(world)
        step(world)
        began = world.now
        give_up_waiting(world.later(1))
        world.later(200)  # a failure at once would count as the program's own
        for uid, pod in world.pods["llm-uid"].items():
            ended = [msgspec.structs.replace(c, finished_at=world.now) for c in pod.containers]
            world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, containers=tuple(ended))
        world.now = began + timedelta(seconds=1)
        recovering(world)
        step(world)
        end_pods(world)
        for _ in range(6):
            step(world)
            end_pods(world)
            if status(world).phase is Phase.BLOCKED:
                break
        assert status(world).reason == Reason.NO_CAPACITY
        wait_s = look(world).requeue_after_s
        assert wait_s is not None
        assert names(status(world).message, f"{world.now + timedelta(seconds=wait_s):%H:%M:%S}")
        pauses.append(round(wait_s, -1))
        started(world.later(wait_s + 1))

    assert pauses == [10, 20, 40, 80]


# --- better places ----------------------------------------------------------------------------------------


def waiting() -> Worlds:
    """Returns a gang that was started away from the then broken n1, and one of whose ranks waits."""
    world = started(faulted())
    recovery = only_recovery(world)
    mark = Mark(recovery=recovery.metadata.name, attempt=1, did="resumed", avoided=("n1",))
    world.change_gang(mark=mark)
    for pod in short(world).pods["llm-uid"].values():
        if pod.node:
            logs(world, pod.node, CoverageState.COVERED)
    return world


def logs(world: Worlds, node: str, state: CoverageState) -> None:
    """Sets whether the node's agent reads the logs of its pods. The agent publishes nothing about a pod
    without steps."""
    health = world.health[node]
    others = [row for row in health.status.coverage if row.source is not Source.LOGS]
    row = Coverage(source=Source.LOGS, state=state, since=world.now)
    told = msgspec.structs.replace(health.status, coverage=[*others, row])
    world.health[node] = msgspec.structs.replace(health, status=told)


def repaired(world: Worlds) -> Worlds:
    health = world.health["n1"]
    world.health["n1"] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, findings=[])
    )
    return world.change_node("n1", quarantine=None, unschedulable=False, taints=())


def test_what_is_broken_no_more_is_let_in_while_ranks_still_wait() -> None:
    world = waiting()
    assert acts(look(world.later(60))) == ["recovery-resuming"], "only words of the scheduler"

    repaired(world)
    assert step(world) == ["recovery-stopping"]

    assert (status(world).attempt, status(world).uncounted) == (2, [1])
    assert names(status(world).message, "n1")
    mark = started(world).gangs["llm-uid"].mark
    assert mark is not None
    assert mark.avoided == ()


def test_a_gang_whose_place_proves_to_be_bad_before_all_ranks_run_is_placed_again() -> None:
    world = waiting().later(60).finding(on="n4")

    assert step(world) == ["recovery-stopping"]
    assert names(status(world).message, "n4", "xid-79")


def test_it_waits_for_its_back_off_and_looks_again_by_itself() -> None:
    world = repaired(waiting())

    assert "recovery-stopping" not in step(world.later(1))
    for _ in range(3):
        wait_s = look(world).requeue_after_s
        assert wait_s is not None
        if step(world.later(wait_s)) == ["recovery-stopping"]:
            break
    assert status(world).uncounted == [1]
    assert status(world).phases[-1].at - status(world).phases[-2].at < timedelta(seconds=11)


@pytest.mark.parametrize("why", ["it makes steps", "its log is not read", "its steps were never read"])
def test_while_a_rank_makes_steps_or_may_nobody_is_stopped_for_a_better_place(why: str) -> None:
    """An elastic training continues with fewer ranks."""
    world = repaired(waiting().later(60))
    (rank, *_) = [pod for pod in world.pods["llm-uid"].values() if pod.node]
    if why == "it makes steps":
        world.progress(rank, Edge.STEPPING, at=world.now)
    elif why == "its log is not read":
        logs(world, rank.node, CoverageState.BLIND)
    else:
        ((key, recovery),) = world.recoveries.items()
        unread = msgspec.structs.replace(recovery.status, last_step=None)
        world.recoveries[key] = msgspec.structs.replace(recovery, status=unread)

    assert "recovery-stopping" not in [*step(world), *step(world.later(3600))]


def test_a_limit_of_its_own_ends_it() -> None:
    world = repaired(waiting()).later(3600)
    ((key, recovery),) = world.recoveries.items()
    many = list(range(1, world.settings.placement.again_starts_max + 1))
    full = msgspec.structs.replace(recovery.status, uncounted=many)
    world.recoveries[key] = msgspec.structs.replace(recovery, status=full)

    assert "recovery-stopping" not in step(world)
