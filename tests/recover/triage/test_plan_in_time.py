"""Tests times that mislead: clocks that are ahead, ends in the same moment, a fault that becomes worse
later. Pure cases."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api import Phase
from recover.api.reasons import Reason
from recover.model import Container, PodPhase
from recover.recovery.advance import advance
from tests.acting import acts, advanced, apply, end_pods, first_step, recovering, start_pods, step
from tests.builders import NOW, cluster, gang


def test_a_fault_told_by_a_clock_that_runs_milliseconds_ahead_is_looked_at_again_in_time() -> None:
    """The node was released at some time, or had an Incident that closed."""
    world = cluster(nodes=40).change_node("n1", released_at=NOW - timedelta(days=5))

    decision = world.finding(on="n1", ago_s=-0.05).decide()

    assert decision.cordons == ["n1"] or decision.plan.requeue_after_s is not None


def test_a_training_whose_master_has_succeeded_is_not_begun_again_for_a_worker_that_lost_it() -> None:
    """The store in the master closes with the master, and a worker exits with 1. The operator reports
    Succeeded only a moment later. After deletions the controller waits for such a moment too
    (deleted_settle_s)."""
    world = cluster(nodes=8).running(gang(ranks=4))
    pods = world.pods["llm-uid"]
    at = world.now - timedelta(seconds=1)
    ended = Container(name="train", running=False, exit_code=0, reason="Completed", finished_at=at)
    pods["llm-0-uid"] = msgspec.structs.replace(
        pods["llm-0-uid"], name="llm-master-0", phase=PodPhase.SUCCEEDED, containers=(ended,)
    )

    assert world.crash(rank=2, ago_s=0.5).decide().restarts == []


def test_a_fault_that_moved_the_gang_before_is_a_cause_again_where_it_comes_back_and_gets_worse() -> None:
    world = cluster(nodes=12).running(gang(ranks=4))
    world.finding(on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING, final=False)
    recovering(world)
    recovering(world.later(world.settings.timing.checkpoint_grace_s + 1))
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)
    step(world)
    (first,) = world.recoveries
    recovering(world.later(7200).crash(rank=3))
    (second,) = set(world.recoveries) - {first}
    while world.recoveries[second].status.phase is not Phase.VERIFYING:
        found = advance(world.recoveries[second], world.world(), world.settings, world.now)
        apply(world, found)
        if "stop-gang" in acts(found):
            end_pods(world)
        if "start-gang" in acts(found):
            start_pods(world.later(2), first_node=0)  # the taint only prefers others
    world.later(60).finding(on="n1", code="xid-79")
    for _ in range(3):
        recovering(world)
        apply(world, advance(world.recoveries[second], world.world(), world.settings, world.now))

    assert world.recoveries[second].status.attempt == 2


def test_a_pod_created_since_the_mode_began_did_not_fail_before_it_whatever_its_nodes_clock_says() -> None:
    world = cluster(nodes=8).running(gang()).crash(rank=2, ago_s=7200)
    world.mode_since = NOW - timedelta(minutes=30)
    assert world.decide().reasons("restart-gang") == [Reason.STALE_EVIDENCE], "the pods are an hour old"

    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, created=NOW - timedelta(minutes=10))

    assert world.decide().restarts == ["llm"]


def test_a_pod_that_was_created_in_the_second_in_which_the_mode_began_is_younger() -> None:
    """Kubernetes reports whole seconds."""
    world = cluster(nodes=8).running(gang()).crash(rank=2, ago_s=7200)
    world.mode_since = NOW - timedelta(minutes=10) + timedelta(milliseconds=400)
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, created=NOW - timedelta(minutes=10))

    assert world.decide().restarts == ["llm"]


def test_a_failed_pod_of_before_the_mode_does_not_act_because_its_peers_are_younger() -> None:
    world = cluster(nodes=8).running(gang()).crash(rank=2, ago_s=7200)
    world.mode_since = NOW - timedelta(minutes=30)
    for uid, pod in world.pods["llm-uid"].items():
        if uid != "llm-2-uid":
            world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, created=NOW - timedelta(minutes=10))

    assert world.decide().reasons("restart-gang") == [Reason.STALE_EVIDENCE]
