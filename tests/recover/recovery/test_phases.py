"""Tests the phases of a recovery in order, and the causes that start, join or repeat a recovery."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, Severity
from detectors.wire.training import Edge, LogError
from recover.api import FailedLog, Phase
from recover.api.reasons import Reason
from recover.model import Container, PodPhase
from recover.recovery.advance import advance
from recover.recovery.context import CAUSES_MAX
from recover.triage.plan import plan
from tests.acting import (
    acts,
    advanced,
    apply,
    end_pods,
    first_step,
    look,
    only_recovery,
    recovering,
    scanned,
    start_pods,
    step,
)
from tests.builders import NOW, Worlds, cluster, gang
from tests.recover.recovery.phase_cases import choice, faulted

# --- a node that breaks once more -------------------------------------------------------------------------


def back_on_a_degraded_node() -> Worlds:
    """Returns a gang that was moved off n1 for a contained fault, and that a later start has placed there
    again."""
    world = cluster(nodes=60).running(gang()).finding(on="n1", severity=Severity.PENDING).crash(rank=1)
    advanced(recovering(world), Phase.VERIFYING)
    first_step(world.later(9), 81)
    step(world)
    assert only_recovery(world).status.phase is Phase.SUCCEEDED
    world.later(300)
    for uid, pod in list(world.pods["llm-uid"].items()):
        node = f"n{pod.name[-1]}"
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, node=node)
    assert recovering(world).decide().restarts == []
    return world


@pytest.mark.parametrize("crashes", [False, True])
def test_a_fault_that_becomes_fatal_acts_on_a_gang_that_was_moved_off_that_node_before(crashes: bool) -> None:
    world = back_on_a_degraded_node().finding(on="n1", code="xid-119", fault=Fault.DRIVER)
    if crashes:
        world.crash(rank=2)

    assert world.decide().restarts == ["llm"]


# --- a whole rack -----------------------------------------------------------------------------------------


def out_of_power(nodes: int) -> Worlds:
    """Returns a gang of two more ranks than `nodes`. These nodes fall silent, and a rank elsewhere fails
    because of it."""
    world = cluster(nodes=nodes + 8).running(gang(ranks=nodes + 2)).crash(rank=nodes)
    for number in range(nodes):
        world.not_ready(f"n{number}")
    return recovering(world)


@pytest.mark.parametrize("nodes", [20, 100])
def test_a_gang_that_loses_more_nodes_than_there_is_room_for_causes_is_stopped_all_the_same(
    nodes: int,
) -> None:
    world = out_of_power(nodes)
    for _ in range(10):
        recovering(world)
        if not step(world):
            break

    status = only_recovery(world).status
    assert acts(look(world)) == []
    assert len(status.causes) == min(nodes, CAUSES_MAX)
    assert status.avoid_nodes == sorted(f"n{number}" for number in range(nodes))
    assert status.causes[0].incident == only_recovery(world).spec.incident


def test_more_broken_nodes_than_causes_begin_one_attempt_after_the_start_and_not_one_after_another() -> None:
    world = recovering(cluster(nodes=240).running(gang(ranks=100)).crash(rank=99))
    advanced(world, Phase.RESUMING)
    step(world)
    start_pods(world.later(2), first_node=100)
    world.later(30).crash(rank=5)
    for number in range(100, 200):
        world.finding(on=f"n{number}")
    recovering(world)

    wrote = [step(recovering(world)) for _ in range(4)]

    assert wrote == [["recovery-stopping"], ["stop-gang"], [], []]
    assert only_recovery(world).status.attempt == 2


# --- the whole path ---------------------------------------------------------------------------------------


def test_a_gang_is_stopped_scanned_resumed_and_proven_by_its_own_first_step() -> None:
    world = faulted(checkpoint="/ckpt")
    assert step(world) == ["stop-gang", "create-scan", "recovery-stopping"]
    assert step(world) == []
    end_pods(world)
    assert step(world) == ["recovery-choosing"]
    assert step(world) == ["release-scan"]
    scanned(world, choice())
    assert step(world) == ["recovery-resuming"]
    assert step(world) == ["start-gang"]
    start_pods(world.later(1))
    assert step(world) == ["recovery-verifying", "remove-scan"]
    first_step(world.later(9), 81)
    assert step(world) == ["recovery-succeeded"]

    status = only_recovery(world).status
    assert [t.phase for t in status.phases] == [
        Phase.STOPPING,
        Phase.CHOOSING,
        Phase.RESUMING,
        Phase.VERIFYING,
        Phase.SUCCEEDED,
    ]
    assert (status.last_step, status.resumed_step, status.lost_steps) == (100, 81, 20)
    assert status.lost_gpu_s == pytest.approx(11 * 32)
    assert status.totals is not None
    assert status.totals.recoveries == 1
    assert step(world) == ["lift-start"]
    assert acts(look(world)) == []


def test_the_time_that_a_gang_trained_on_after_the_first_evidence_is_not_lost() -> None:
    world = cluster(nodes=8).running(gang()).finding(on="n1", severity=Severity.PENDING)
    recovering(world)
    recovering(world.later(world.settings.timing.checkpoint_grace_s))
    for pod in world.pods["llm-uid"].values():
        world.progress(pod, Edge.STEPPING, at=world.now, last_step=900)
    advanced(world, Phase.VERIFYING)

    first_step(world.later(9), 881)
    step(world)

    status = only_recovery(world).status
    assert (status.lost_steps, status.lost_gpu_s) == (20, pytest.approx(11 * 32))


def test_an_act_that_is_done_is_not_repeated_at_the_next_look() -> None:
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.STOPPING)
    assert step(world) == ["stop-gang", "create-scan"]
    assert acts(look(world)) == []

    end_pods(world)
    advanced(world, Phase.CHOOSING)
    assert step(world) == ["release-scan"]
    assert acts(look(world)) == []

    scanned(world, choice())
    advanced(world, Phase.RESUMING)
    assert step(world) == ["start-gang"]
    assert acts(look(world)) == ["remove-scan"]


# --- later causes -----------------------------------------------------------------------------------------


def test_a_crash_after_the_resume_begins_the_next_attempt_although_the_first_incident_is_still_open() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    new = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(5).now)
    world.pods["llm-uid"][new.uid] = msgspec.structs.replace(new, phase=PodPhase.FAILED, containers=(failed,))

    recovering(world)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 2)


def test_the_first_error_of_a_lost_rank_is_kept_however_much_its_launcher_printed_after_it() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    lost = next(p for p in world.health["n1"].status.pods if p.name == "llm-worker-1")
    full = LogError(code="log-no-space", at=world.now, text="OSError: [Errno 28] No space left on device")
    said = msgspec.structs.replace(lost, edge=Edge.ENDED, first_error=full, tail="train.py FAILED")
    status = msgspec.structs.replace(world.health["n1"].status, pods=[said])
    world.health["n1"] = msgspec.structs.replace(world.health["n1"], status=status)

    recovery = advanced(world, Phase.RESUMING)

    assert recovery.status.failed_log == FailedLog(
        pod="llm-worker-1", node="n1", first_error=full.text, tail=said.tail
    )


def test_a_log_of_which_the_agent_tells_only_after_the_choice_is_kept_with_the_next_status() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    lost = next(p for p in world.health["n1"].status.pods if p.name == "llm-worker-1")
    advanced(world, Phase.RESUMING)
    assert only_recovery(world).status.failed_log is None
    said = msgspec.structs.replace(lost, edge=Edge.ENDED, tail="giving up")
    status = msgspec.structs.replace(world.health["n1"].status, pods=[said])
    world.health["n1"] = msgspec.structs.replace(world.health["n1"], status=status)

    recovery = advanced(world, Phase.VERIFYING)

    assert recovery.status.failed_log == FailedLog(pod="llm-worker-1", node="n1", tail="giving up")


def test_what_a_rank_prints_after_our_stop_is_not_the_first_error() -> None:
    """torchrun raises SignalException when it is asked to end."""
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    rank = next(p for p in world.health["n1"].status.pods if p.name == "llm-worker-1")
    text = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15"
    asked = LogError(code="log-traceback", at=world.later(1).now, text=text)
    said = msgspec.structs.replace(rank, edge=Edge.ENDED, first_error=asked, tail=text)
    status = msgspec.structs.replace(world.health["n1"].status, pods=[said])
    world.health["n1"] = msgspec.structs.replace(world.health["n1"], status=status)

    recovery = advanced(world, Phase.RESUMING)

    assert recovery.status.failed_log == FailedLog(pod="llm-worker-1", node="n1", tail=text)


def test_a_crash_before_the_resume_joins_and_widens_what_is_avoided() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    world.finding(on="n2")

    recovering(world)
    assert step(world) == ["recovery-stopping"]

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 1)
    assert status.avoid_nodes == ["n1", "n2"]
    assert len(status.causes) == 2


def test_a_pending_fault_does_not_restart_a_gang_that_is_verifying() -> None:
    world = faulted()
    advanced(world, Phase.VERIFYING)
    world.finding(on="n5", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)

    recovering(world)

    assert acts(look(world)) == []


@pytest.mark.parametrize(("is_used", "attempt"), [(False, 1), (True, 2)])
def test_a_fault_that_triage_wrote_during_the_start_stops_the_gang_once_more_only_where_a_rank_is(
    is_used: bool, attempt: int
) -> None:
    world = faulted()
    before = advanced(world, Phase.VERIFYING)
    used = {pod.node for pod in world.pods["llm-uid"].values()}
    node = min(used if is_used else world.nodes.keys() - used)
    first = before.status.causes[0]
    late = msgspec.structs.replace(
        first, incident=f"{node}-nvlink-1", finding="late", node=node, at=world.now
    )
    spec = msgspec.structs.replace(before.spec, causes=[*before.spec.causes, late])
    world.recoveries[f"ml/{before.metadata.name}"] = msgspec.structs.replace(before, spec=spec)

    step(world)

    assert only_recovery(world).status.attempt == attempt


def test_a_cause_that_an_earlier_recovery_took_up_does_not_act_again_in_the_next_one() -> None:
    world = faulted()
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)
    step(world)
    lost = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(60).now)
    world.pods["llm-uid"][lost.uid] = msgspec.structs.replace(
        lost, phase=PodPhase.FAILED, containers=(failed,)
    )
    recovering(world)
    (second,) = [r for r in world.recoveries.values() if r.active]

    for _ in range(2):
        apply(world, advance(second, world.world(), world.settings, world.now))
        second = world.recoveries[f"ml/{second.metadata.name}"]

    assert [cause.fault for cause in second.status.causes] == [Fault.APPLICATION]


def test_as_many_attempts_as_are_allowed_then_the_gang_stays_suspended_and_a_person_is_called() -> None:
    world = recovering(
        cluster(nodes=8).running(gang(annotations={"rekindle.dev/attempts-per-cause": "2"})).crash(rank=0)
    )
    for _ in range(2):
        advanced(world, Phase.VERIFYING)
        lost = next(iter(world.pods["llm-uid"].values()))
        failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(5).now)
        world.pods["llm-uid"][lost.uid] = msgspec.structs.replace(
            lost, phase=PodPhase.FAILED, containers=(failed,)
        )
        recovering(world)
        step(world)

    status = advanced(world, Phase.ESCALATED).status
    assert status.reason == Reason.CRASH_LOOP
    assert [t.phase for t in status.phases].count(Phase.RESUMING) == 2
    assert world.gangs["llm-uid"].suspended


def test_restarts_for_one_kind_of_fault_weeks_apart_are_no_crash_loop() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=0))
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)
    step(world)
    done = only_recovery(world)
    for number in range(2, 6):
        metadata = msgspec.structs.replace(
            done.metadata, name=f"old-{number}", creation_timestamp=NOW - timedelta(days=40 - number)
        )
        spec = msgspec.structs.replace(done.spec, number=number, incident=f"old-{number}")
        world.recoveries[f"ml/old-{number}"] = msgspec.structs.replace(done, metadata=metadata, spec=spec)
    lost = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(60).now)
    world.pods["llm-uid"][lost.uid] = msgspec.structs.replace(
        lost, phase=PodPhase.FAILED, containers=(failed,)
    )
    recovering(world)
    world.recoveries = {k: r for k, r in world.recoveries.items() if r.spec.number != 1}
    (name,) = [k for k, r in world.recoveries.items() if r.active]

    for _ in range(4):
        apply(world, advance(world.recoveries[name], world.world(), world.settings, world.now))
        end_pods(world)

    assert world.recoveries[name].status.phase is Phase.RESUMING


def test_a_node_that_goes_silent_while_its_gang_is_stopped_is_one_more_cause() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    assert "stop-gang" in step(world)
    world.later(5).not_ready("n2", ago_s=1)

    apply(world, plan(world.world(), world.settings, world.now))
    step(world)

    status = only_recovery(world).status
    assert {cause.fault for cause in status.causes} == {Fault.HOST}
    assert status.avoid_nodes == ["n2"]


def test_once_a_hold_has_ended_the_same_failure_restarts_the_gang_after_all() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    world.change_gang(annotations={"rekindle.dev/hold": "true"})
    step(world)
    assert only_recovery(world).status.phase is Phase.FAILED

    world.change_gang(annotations={})

    assert world.decide().restarts == ["llm"]


def test_new_ranks_that_crash_are_seen_although_the_controllers_clock_is_ahead() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    pods = world.pods["llm-uid"]
    for uid, pod in list(pods.items()):
        pods[uid] = msgspec.structs.replace(pod, uid=f"new-{uid}", created=NOW - timedelta(seconds=30))
    (first, *_) = pods.values()
    ended = Container(name="train", running=False, exit_code=1, finished_at=world.now)
    pods[first.uid] = msgspec.structs.replace(first, phase=PodPhase.FAILED, containers=(ended,))

    apply(world, plan(world.world(), world.settings, world.now))
    step(world)

    assert only_recovery(world).status.attempt == 2


def test_a_fault_minutes_after_the_stop_on_a_node_of_the_gang_still_keeps_it_off_that_node() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    assert "stop-gang" in step(world)
    end_pods(world)
    world.later(170).finding(on="n3")

    apply(world, plan(world.world(), world.settings, world.now))
    step(world)

    assert only_recovery(world).status.avoid_nodes == ["n3"]
