"""A job that its framework has failed does not wait in silence, although no pod tells of a lost rank."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from recover.api import Blame, Phase
from recover.api.reasons import Reason
from recover.model import PodPhase, Terminal
from recover.model.modes import Mode
from tests.acting import apply, recovering, step
from tests.builders import Worlds, cluster, gang

RECREATE = {"rekindle.dev/on-terminal": "recreate"}


def failed(*, ago_s: float = 10, annotations: dict[str, str] | None = None) -> Worlds:
    """All pods of the failed job are gone."""
    job = gang(annotations=RECREATE if annotations is None else annotations)
    world = cluster(nodes=8).running(job)
    world.pods["llm-uid"].clear()
    at = world.now - timedelta(seconds=ago_s)
    return world.change_gang(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded", at=at))


def test_a_failed_job_without_pods_is_restarted_if_its_owner_allows_that() -> None:
    decision = failed().decide()

    assert decision.restarts == ["llm"]
    assert decision.incident.status.blame is Blame.UNKNOWN
    assert "BackoffLimitExceeded" in decision.incident.status.summary


def test_where_its_owner_does_not_allow_that_the_incident_says_so() -> None:
    decision = failed(annotations={}).decide()

    assert decision.restarts == []
    assert decision.reasons() == [Reason.TERMINAL_JOB]


def test_pods_that_tell_more_are_waited_for() -> None:
    world = failed(ago_s=1)

    early = world.decide()

    assert (early.incidents, early.restarts) == ([], [])
    assert early.plan.requeue_after_s is not None
    assert world.later(5).decide().restarts == ["llm"]


def test_a_pod_that_has_not_ended_will_tell_more() -> None:
    world = cluster(nodes=8).running(gang(annotations=RECREATE))
    world.change_gang(terminal=Terminal(succeeded=False, at=world.now - timedelta(seconds=10)))

    assert world.decide().plan.actions == ()


def test_the_pods_of_a_start_before_a_resume_do_not_count() -> None:
    """A training operator takes a pod that is told to end and still runs for a failed one."""
    world = cluster(nodes=8).running(gang(annotations=RECREATE))
    told, resumed = world.now - timedelta(seconds=60), world.now - timedelta(seconds=10)
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, deleting_since=told)
    world.change_gang(resumed_at=resumed, terminal=Terminal(succeeded=False, at=resumed))

    assert world.decide().restarts == ["llm"]


def test_a_pod_that_succeeded_tells_of_no_failure() -> None:
    world = failed()
    pods = cluster(nodes=8).running(gang(annotations=RECREATE)).pods["llm-uid"]
    world.pods["llm-uid"]["llm-1-uid"] = msgspec.structs.replace(
        pods["llm-1-uid"], phase=PodPhase.SUCCEEDED, containers=()
    )

    assert world.decide().restarts == ["llm"]


@pytest.mark.parametrize("at", [None, timedelta(hours=2)], ids=["at no known time", "long ago"])
def test_people_know_of_an_older_failure(at: timedelta | None) -> None:
    world = failed()
    since = world.now - at if at is not None else None

    decision = world.change_gang(terminal=Terminal(succeeded=False, at=since)).decide()

    assert (decision.incidents, decision.restarts) == ([], [])


def test_a_failure_of_which_an_incident_tells_is_told_once() -> None:
    """The pods told of it, and somebody has deleted them since."""
    world = cluster(nodes=8).running(gang()).crash(rank=1)
    world.change_gang(terminal=Terminal(succeeded=False, at=world.now))
    apply(world, world.decide().plan)
    world.pods["llm-uid"].clear()

    apply(world, world.later(30).decide().plan)

    assert len(world.incidents) == 1


def test_an_incident_of_another_day_tells_of_another_failure() -> None:
    world = cluster(nodes=8).running(gang(annotations=RECREATE)).crash(rank=1)
    apply(world, world.decide().plan)
    world.recoveries.clear()
    world.pods["llm-uid"].clear()
    world.later(6 * 86400).change_gang(terminal=Terminal(succeeded=False, at=world.now))

    assert world.later(10).decide().restarts == ["llm"]


def test_a_failure_in_a_long_pause_is_answered_after_the_pause() -> None:
    world = failed()
    before, world.mode = world.mode, Mode.OBSERVE
    apply(world, world.decide().plan)
    assert world.recoveries == {}

    world.mode = before
    decision = world.later(2 * 3600).decide()

    assert decision.restarts == ["llm"]


def test_a_job_whose_recovery_nobody_asked_for_is_left_alone() -> None:
    decision = failed(annotations={**RECREATE, "rekindle.dev/auto-recovery": "disabled"}).decide()

    assert (decision.incidents, decision.restarts) == ([], [])


def test_a_failure_before_a_recovery_stopped_the_job_is_of_an_earlier_start() -> None:
    """As of a job that was given up: it stays failed, and nobody is to start it again."""
    world = recovering(cluster(nodes=8).running(gang(annotations=RECREATE)).crash(rank=1))
    failed_at = world.now
    while "stop-gang" not in step(world):
        pass
    ((key, recovery),) = world.recoveries.items()
    status = msgspec.structs.replace(recovery.status, phase=Phase.ESCALATED)
    world.recoveries[key] = msgspec.structs.replace(recovery, status=status)
    world.pods["llm-uid"].clear()
    terminal = Terminal(succeeded=False, at=failed_at - timedelta(seconds=2))
    world.later(60).change_gang(terminal=terminal, suspended=False)

    apply(world, world.decide().plan)

    assert len(world.incidents) == len(world.recoveries) == 1
