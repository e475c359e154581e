"""A job that its framework has failed does not wait in silence, even if no pod shows a lost rank."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault
from detectors.wire.training import Edge
from recover.api import Blame, IncidentPhase, Phase
from recover.api.reasons import Reason
from recover.model import PodPhase, Terminal
from recover.model.modes import Mode
from recover.model.pause import Pause
from recover.policy.settings import Settings
from recover.triage.guard import Denied, may_touch
from recover.triage.ordinary import is_ordinary_gang
from recover.triage.plan import plan
from tests.acting import apply, recovering, step
from tests.builders import NOW, Decision, Worlds, cluster, gang

RECREATE = {"rekindle.dev/on-terminal": "recreate"}


def failed(*, ago_s: float = 10, annotations: dict[str, str] | None = None) -> Worlds:
    """Returns a failed job whose pods are all gone."""
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
    """A training operator counts a pod that is being deleted and still runs as failed."""
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
    """The pods showed the failure, and somebody has deleted them since."""
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


@pytest.mark.parametrize("before", [timedelta(seconds=2), timedelta(0)], ids=["before", "in the same second"])
def test_a_failure_before_a_recovery_stopped_the_job_is_of_an_earlier_start(before: timedelta) -> None:
    """The job was given up: it stays failed, and Rekindle must not start it again."""
    world = recovering(cluster(nodes=8).running(gang(annotations=RECREATE)).crash(rank=1))
    world.later(0.4)
    while "stop-gang" not in step(world):
        pass
    stopped_at = world.now
    ((key, recovery),) = world.recoveries.items()
    status = msgspec.structs.replace(recovery.status, phase=Phase.ESCALATED)
    world.recoveries[key] = msgspec.structs.replace(recovery, status=status)
    world.pods["llm-uid"].clear()
    terminal = Terminal(succeeded=False, at=stopped_at.replace(microsecond=0) - before)
    world.later(60).change_gang(terminal=terminal, suspended=False)

    apply(world, world.decide().plan)

    assert len(world.incidents) == len(world.recoveries) == 1


def paused_on_failure(annotations: dict[str, str] | None = None) -> Worlds:
    """Returns a job that failed while Rekindle was paused. Its pods showed the failure, and then somebody
    deleted them."""
    world = cluster(nodes=8).running(gang(annotations=annotations or RECREATE))
    apply(world, world.decide().plan)
    world.paused = Pause(since=world.now)
    world.later(60).crash(rank=1)
    world.change_gang(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded", at=world.now))
    apply(world, world.decide().plan)
    world.pods["llm-uid"].clear()
    for _ in range(3):
        apply(world, world.later(10).decide().plan)
    return world


def test_what_pods_told_in_a_pause_goes_on_after_they_are_deleted() -> None:
    world = paused_on_failure()
    ((name, told),) = world.incidents.items()

    world.paused, world.resumed = None, world.now
    decision = world.later(60).decide()

    assert decision.restarts == ["llm"]
    apply(world, decision.plan)
    ((name_after, after),) = world.incidents.items()
    assert name_after == name
    assert (told.fault, told.status.blame) == (Fault.APPLICATION, Blame.APPLICATION)
    assert (after.fault, after.status.blame) == (told.fault, told.status.blame)
    assert (after.status.evidence, after.status.summary) == (told.status.evidence, told.status.summary)


def test_the_same_after_a_hold_on_the_job() -> None:
    world = (
        cluster(nodes=8).running(gang(annotations={**RECREATE, "rekindle.dev/hold": "true"})).crash(rank=1)
    )
    world.change_gang(terminal=Terminal(succeeded=False, at=world.now))
    apply(world, world.decide().plan)
    world.pods["llm-uid"].clear()
    for _ in range(3):
        apply(world, world.later(10).decide().plan)
    assert world.recoveries == {}

    assert world.change_gang(annotations=RECREATE).later(60).decide().restarts == ["llm"]


def test_a_notice_of_a_missing_first_step_hides_no_failure() -> None:
    world = cluster(nodes=8).running(gang(annotations=RECREATE), stepping=False)
    apply(world, world.decide().plan)
    apply(world, world.later(600).decide().plan)
    assert len(world.incidents) == 1
    world.pods["llm-uid"].clear()
    world.later(60).change_gang(terminal=Terminal(succeeded=False, reason="PodFailurePolicy", at=world.now))

    decision = world.later(10).decide()

    assert decision.restarts == ["llm"]
    apply(world, decision.plan)
    (incident,) = world.incidents.values()
    assert "PodFailurePolicy" in incident.status.summary


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("DeadlineExceeded", "Job was active longer than specified deadline"),
        ("PyTorchJobFailed", "Job llm has failed because it was active longer than specified deadline"),
    ],
)
def test_a_job_that_has_reached_its_owners_deadline_has_not_failed(reason: str, message: str) -> None:
    world = failed()
    terminal = Terminal(succeeded=False, reason=reason, message=message, at=world.now - timedelta(seconds=10))

    decision = world.change_gang(terminal=terminal).decide()
    with_pods = cluster(nodes=8).running(gang(annotations=RECREATE)).crash(rank=1, exit_code=143)
    struck = with_pods.change_gang(terminal=terminal).finding(on="n1").later(5).decide()

    assert (decision.incidents, decision.restarts) == ([], [])
    assert (struck.cordons, struck.restarts) == (["n1"], [])


@pytest.mark.parametrize(("attempt", "restarts"), [(0, []), (1, ["llm"])], ids=["this start", "an earlier"])
@pytest.mark.parametrize("is_failed", [False, True])
def test_a_jobset_whose_job_has_reached_its_owners_deadline_has_not_failed(
    attempt: int, restarts: list[str], is_failed: bool
) -> None:
    """The JobSet only says that one of its Jobs has failed, and the Job controller deletes the pods."""
    at = NOW - timedelta(seconds=10)
    late = Terminal(succeeded=False, reason="DeadlineExceeded", at=at)
    world = cluster(nodes=8).running(gang(annotations=RECREATE)).crash(rank=1, exit_code=143)
    if is_failed:
        world.pods["llm-uid"].clear()
        world.change_gang(terminal=Terminal(succeeded=False, reason="FailedJobs", at=at))
    world.change_gang(restarts=attempt)
    job = msgspec.structs.replace(gang("llm-ranks-0"), part_of="llm-uid", terminal=late)
    known = msgspec.structs.replace(world.world(), parts_of={"llm-uid": {job.ref.uid: job}})

    decision = Decision(plan(known, world.settings, world.later(5).now))

    assert decision.restarts == restarts
    assert bool(decision.incidents) is bool(restarts)
    told = may_touch(known, world.gangs["llm-uid"], world.now)
    assert isinstance(told, Denied) is not bool(restarts)


def test_a_crash_that_the_framework_has_mended_hides_no_later_failure() -> None:
    world = cluster(nodes=8).running(gang(annotations=RECREATE)).restart_in_place(rank=1, ago_s=1)
    before, world.mode = world.mode, Mode.OBSERVE
    apply(world, world.later(30).decide().plan)
    world.mode = before
    for pod in world.pods["llm-uid"].values():
        world.progress(pod, Edge.STEPPING, at=world.now + timedelta(seconds=60), instance=1)
    apply(world, world.later(120).decide().plan)
    world.pods["llm-uid"].clear()
    world.later(1500).change_gang(terminal=Terminal(succeeded=False, at=world.now))

    assert world.later(10).decide().restarts == ["llm"]


@pytest.mark.parametrize("ago", [timedelta(hours=2), timedelta(hours=48)], ids=str)
def test_a_fault_of_today_restarts_no_job_that_failed_long_ago(ago: timedelta) -> None:
    """The failed pod is gone, and the pods that ended well still exist."""
    world = cluster(nodes=8).running(gang(annotations=RECREATE))
    pods = world.pods["llm-uid"]
    del pods["llm-3-uid"]
    for uid, pod in pods.items():
        created = world.now - timedelta(days=3)
        pods[uid] = msgspec.structs.replace(pod, phase=PodPhase.SUCCEEDED, containers=(), created=created)
    world.mode_since = world.now - timedelta(days=30)
    world.change_gang(terminal=Terminal(succeeded=False, at=world.now - ago))
    assert world.decide().restarts == []

    decision = world.finding(on="n1").later(3).decide()

    assert decision.restarts == []
    assert [incident.status.victims for incident in decision.incidents] == [[]]


def test_a_failed_job_whose_recovery_nobody_asked_for_is_ordinary() -> None:
    """A cluster may keep thousands of such jobs."""
    world = failed(annotations={**RECREATE, "rekindle.dev/auto-recovery": "disabled"}).world()
    (job,) = world.gangs.values()

    assert is_ordinary_gang(world, job, Settings().timing, NOW)


def test_a_failure_that_a_node_explained_in_a_hold_is_answered_after_the_hold() -> None:
    """The gang's own Incident closes, because it points to the node's Incident. Then the pods go, and with
    them the reason why the gang is an affected gang of the node."""
    world = cluster(nodes=8).running(gang(annotations={**RECREATE, "rekindle.dev/hold": "true"}))
    world.crash(rank=1).change_gang(terminal=Terminal(succeeded=False, at=world.now))
    apply(world, world.decide().plan)
    apply(world, world.finding(on="n1").later(5).decide().plan)
    world.pods["llm-uid"].clear()
    for _ in range(3):
        apply(world, world.later(10).decide().plan)
    assert world.recoveries == {}

    assert world.change_gang(annotations=RECREATE).later(5).decide().restarts == ["llm"]


def test_an_incident_that_was_closed_for_a_moment_is_followed_by_another() -> None:
    """The owner had disabled recovery, and enabled it again."""
    held = {**RECREATE, "rekindle.dev/hold": "true"}
    world = failed(annotations=held)
    apply(world, world.decide().plan)
    world.change_gang(annotations={**held, "rekindle.dev/auto-recovery": "disabled"})
    apply(world, world.later(10).decide().plan)
    world.change_gang(annotations=held)
    for _ in range(2):
        apply(world, world.later(10).decide().plan)

    phases = sorted(incident.status.phase for incident in world.incidents.values())
    assert phases == [IncidentPhase.CLOSED, IncidentPhase.OPEN]
