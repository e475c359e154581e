"""Removals that the API server refuses: the Recovery reports them, and the controller tries them again."""

from __future__ import annotations

import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from recover.model import Refusal, Taint, Terminal
from tests.acting import acts, look, only_recovery, step
from tests.builders import Worlds
from tests.recover.recovery.test_phases_stop import fencing

WORDS = '403 Forbidden: admission webhook "pods.example.com" denied the request'


def proven() -> Worlds:
    world = fencing()
    return world.change_node("n2", taints=(Taint("node.kubernetes.io/out-of-service", "NoExecute"),))


def refuse(world: Worlds, pod: str = "llm-worker-2") -> None:
    world.refused[f"pods/ml/{pod}"] = Refusal(world.now, WORDS, may_pass=False)


def test_a_removal_that_is_refused_is_told_once_and_tried_every_ten_seconds() -> None:
    world = proven()
    assert acts(look(world)) == ["fail-pod", "free-pod"]
    refuse(world)

    assert step(world) == ["recovery-fencing"]
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.FENCING, Reason.WRITE_REFUSED)
    assert WORDS in status.message
    assert "llm-worker-2" in status.message

    assert step(world.later(4)) == []
    assert look(world).requeue_after_s == 6.0
    assert step(world.later(6)) == ["fail-pod", "free-pod"]
    assert step(world) == ["recovery-resuming"]
    assert only_recovery(world).status.reason == Reason.CHECKPOINT_UNVERIFIED


@pytest.mark.parametrize("days", [0, 1])
def test_a_blocked_recovery_stays_known_by_what_it_waits_for(days: int) -> None:
    world = fencing()
    step(world.later(300))
    assert only_recovery(world).status.phase is Phase.BLOCKED
    world.change_node("n2", taints=(Taint("node.kubernetes.io/out-of-service", "NoExecute"),))
    refuse(world)

    step(world)
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NEEDS_FENCING_PROOF)
    assert WORDS in status.message

    del world.refused["pods/ml/llm-worker-2"]
    assert step(world.later(86400 * days)) == ["fail-pod", "free-pod"]


def test_the_pods_of_a_job_that_was_failed_for_good_are_no_exception() -> None:
    world = fencing()
    world.change_gang(
        terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded", message=""),
        annotations={"rekindle.dev/on-terminal": "recreate"},
    )
    refuse(world.change_node("n2", taints=(Taint("node.kubernetes.io/out-of-service", "NoExecute"),)))

    step(world)

    assert only_recovery(world).status.reason == Reason.WRITE_REFUSED
