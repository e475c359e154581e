"""Tests changes that people, frameworks and time make between two steps of a recovery, or between two
recoveries of a gang."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.training import Edge
from recover.api import Phase, Recovery, RecoveryStatus
from recover.api.marks import SCAN_OF
from recover.api.reasons import Reason
from recover.model import Pod, Terminal
from recover.model.actions import Create, Delete
from recover.policy.settings import Retention
from recover.recovery.advance import advance
from recover.recovery.expiry import expire
from recover.recovery.scan_pod import scan_label
from recover.triage.attempts import attempts_without_progress
from tests.acting import advanced, apply, end_pods, look, only_recovery, recovering, start_pods, step
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.diagnose.test_lost_ranks import deleted
from tests.recover.recovery.test_recreate import FAILED, counted, job, lost_gpu, reached
from tests.recover.workloads.test_jobset import faulted as jobset_faulted
from tests.recover.workloads.test_jobset import looked as jobset_looked

CONSENT = {"rekindle.dev/auto-recovery": "enabled"}


def change(world: Worlds, key: str = "", **status: object) -> None:
    """Changes the status of one Recovery, or of the only one."""
    key = key or next(iter(world.recoveries))
    old = world.recoveries[key]
    world.recoveries[key] = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, **status))


# --- people -----------------------------------------------------------------------------------------------


def test_who_deletes_a_recovery_that_was_undone_as_told_is_helped_at_the_next_fault() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    step(world)
    world.change_gang(suspended=False, suspend_writer="argocd-controller")
    step(world)
    assert only_recovery(world).status.reason == Reason.FOREIGN_OWNER

    world.recoveries.clear()
    world.later(600).crash(rank=2)
    recovering(world)
    advanced(world, Phase.STOPPING)

    assert [step(world), step(world)] == [["recovery-stopping"], ["stop-gang"]], "n1 is a further cause"


@pytest.mark.parametrize("stuck_s", [0, 3600])
def test_a_stopped_gang_whose_mark_somebody_removes_is_started_again(stuck_s: float) -> None:
    """For example by `kubectl annotate pytorchjob llm rekindle.dev/recovery-`. managedFields then show that
    Rekindle has written the field `suspend`."""
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    assert step(world) == ["stop-gang"]
    if stuck_s:
        assert step(world.later(stuck_s)) == ["recovery-blocked"]
    world.change_gang(mark=None, suspended=True, suspend_writer="rekindle-controller")

    assert step(world) == []
    end_pods(world)
    assert [step(world), step(world)] == [["recovery-resuming"], ["start-gang"]]


def test_a_started_gang_whose_mark_somebody_removes_is_not_given_up_and_its_next_fault_acts() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.RESUMING)
    assert step(world) == ["start-gang"]
    world.change_gang(mark=None, suspended=False, suspend_writer="rekindle-controller")
    assert step(world) == []
    start_pods(world.later(2))
    assert step(world) == ["recovery-verifying"]

    world.later(5).finding(on="n5")
    recovering(world)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 2)
    assert step(world) == ["stop-gang"]


def test_a_gang_that_a_person_suspends_as_its_node_breaks_opens_no_recovery_after_recovery() -> None:
    world = cluster(nodes=8).running(gang()).finding(on="n1")
    world.change_gang(suspended=True, suspend_writer="kubectl")

    for _ in range(3):
        recovering(world)
        for recovery in list(world.recoveries.values()):
            apply(world, advance(recovery, world.world(), world.settings, world.now))
    assert world.recoveries == {}
    (record,) = [a for i in world.incidents.values() for a in i.status.actions if a.action == "restart-gang"]
    assert record.reason == Reason.HELD
    assert names(record.message, "kubectl", "ml/llm")

    world.change_gang(suspended=False)
    assert world.decide().restarts == ["llm"]


def test_recoveries_that_people_have_kept_from_stopping_anything_are_no_attempts() -> None:
    world = cluster(nodes=8).running(gang()).crash(rank=1)
    for _ in range(4):
        before = set(world.recoveries)
        recovering(world)
        (new,) = set(world.recoveries) - before
        change(world, new, phase=Phase.FAILED, reason=Reason.HELD)
    recovering(world)

    history = world.world().history("llm-uid")

    assert len(history) == 5
    assert attempts_without_progress(history, history[-1], RecoveryStatus(), NOW - timedelta(days=1)) == 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_gang_that_people_scale_down_has_lost_nobody(gone: bool) -> None:
    world = cluster().running(gang("llm", ranks=4))
    deleted(world, 3, gone=gone)
    world.change_gang(size=3)

    assert world.decide().incidents == []


# --- a gang that was repaired before its owner enabled recovery -------------------------------------------


def trained_on(*, steps: bool) -> Worlds:
    """Returns a gang that lost a rank an hour ago and whose other ranks restarted in place. Somebody other
    than Rekindle repaired the gang."""
    world = cluster(nodes=8).running(gang("llm", ranks=4, opted_in=False))
    pod = deleted(world, 2, gone=True)
    for rank in (0, 1, 3):
        world.restart_in_place(rank=rank)
    new = msgspec.structs.replace(pod, uid="anew", deleting_since=None, created=world.now)
    world.pods["llm-uid"][new.uid] = new
    assert len(recovering(world).incidents) == 1
    world.later(3600)
    if steps:
        for each in world.pods["llm-uid"].values():
            at = world.now - timedelta(minutes=30)
            world.progress(each, Edge.STEPPING, at=at, instance=0 if each is new else 1)
    return world


@pytest.mark.parametrize("steps", [True, False])
def test_a_gang_that_was_mended_without_us_is_not_stopped_when_it_consents_at_last(steps: bool) -> None:
    world = trained_on(steps=steps)

    world.change_gang(labels=CONSENT)

    assert world.decide().restarts == ([] if steps else ["llm"])


def test_the_last_words_of_an_earlier_instance_say_nothing_of_a_silent_one_that_runs() -> None:
    """Many jobs print their steps on one rank only."""
    world = trained_on(steps=True)
    rank = world.pods["llm-uid"]["llm-1-uid"]
    health = world.health[rank.node]
    (told,) = [pod for pod in health.status.pods if pod.uid == rank.uid]
    last = msgspec.structs.replace(
        told, edge=Edge.ENDED, instance=0, first_step=None, last_step=None, tail="giving up"
    )
    status = msgspec.structs.replace(health.status, pods=[last])
    world.health[rank.node] = msgspec.structs.replace(health, status=status)

    world.change_gang(labels=CONSENT)

    assert world.decide().restarts == []


def test_of_a_gang_that_was_mended_once_the_next_crash_in_place_is_seen() -> None:
    world = trained_on(steps=True).change_gang(labels=CONSENT)
    pods = world.pods["llm-uid"]
    (before,) = pods["llm-0-uid"].containers
    again = msgspec.structs.replace(before, restarts=2, finished_at=world.now - timedelta(seconds=1))
    pods["llm-0-uid"] = msgspec.structs.replace(pods["llm-0-uid"], containers=(again,))

    assert world.decide().restarts == ["llm"]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_failed_pod_from_before_a_person_resumed_the_job_is_no_lost_rank(resumed: bool) -> None:
    """Under a hold a person did by hand what Rekindle would have done. The Job still keeps the failed pod."""
    world = cluster(nodes=8).running(gang()).crash(rank=1).later(600)
    if resumed:
        start_pods(world)
        world.change_gang(started_at=world.now)

    assert world.later(5).decide().restarts == ([] if resumed else ["llm"])


# --- frameworks -------------------------------------------------------------------------------------------


def test_what_a_framework_writes_of_a_job_that_may_be_made_anew_is_nothing_that_decisions_read() -> None:
    """Otherwise each stop of the job would be decided again after a conflict, which takes longer than
    JobSet waits."""
    before, after = job(), job(status={"conditions": [], "ready": 3})

    assert msgspec.structs.replace(after, version=before.version) == before
    assert before.definition != b""


def test_the_second_write_of_a_jobsets_stop_that_is_never_taken_is_said_and_tried_on() -> None:
    world = jobset_faulted()
    world.later(world.settings.timing.stop_deadline_s)
    step(world)
    status = only_recovery(world).status

    assert (status.phase, status.reason) == (Phase.STOPPING, Reason.FRAMEWORK_SILENT)
    assert jobset_looked(world, []) == ["renew-jobs"]


# --- between the kept definition and the new job ----------------------------------------------------------


def kept() -> Worlds:
    """Returns a recovery that has stored the definition of a job with counted failures, and has not
    deleted the job yet."""
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=3)
    reached(world, Phase.RESUMING)
    assert step(world) == ["recovery-resuming"]
    return world


def edited(world: Worlds, **annotations: str | None) -> None:
    """Lets a person change annotations of the job. None removes an annotation."""
    whole = msgspec.json.decode(world.gangs["llm-uid"].definition)
    told = {**whole["metadata"]["annotations"], **annotations}
    told = {name: value for name, value in told.items() if value is not None}
    whole["metadata"]["annotations"] = told
    consents = "rekindle.dev/on-terminal" in told
    world.change_gang(annotations=told, definition=msgspec.json.encode(whole) if consents else b"")


def made(world: Worlds) -> Create:
    """Lets the job be deleted. Returns the write that creates the job again."""
    wrote = [step(world) for _ in range(2)]
    assert "delete-job" in str(wrote)
    del world.gangs["llm-uid"]
    (create,) = [action for action in look(world).actions if isinstance(action, Create)]
    return create


def test_only_the_job_whose_definition_is_kept_is_deleted() -> None:
    world = kept()

    (delete,) = [action for action in look(world).actions if isinstance(action, Delete)]

    assert (delete.uid, delete.version) == ("llm-uid", "10")


def test_an_edit_before_the_deletion_is_in_the_new_job() -> None:
    world = kept()
    edited(world, theirs="new")

    assert made(world).body["metadata"]["annotations"]["theirs"] == "new"


def test_a_node_that_is_to_be_avoided_since_keeps_the_new_job_off() -> None:
    world = kept()
    world.finding(on="n5")
    step(world)

    assert "n5" in str(made(world).body["spec"]["template"]["spec"]["affinity"])


def test_consent_that_is_withdrawn_before_the_deletion_is_heard() -> None:
    world = kept()
    edited(world, **{"rekindle.dev/on-terminal": None})

    wrote = [step(world) for _ in range(3)]

    assert "delete-job" not in str(wrote)
    assert "start-gang" in str(wrote)
    del world.gangs["llm-uid"]
    assert step(world) == ["recovery-failed"]
    assert only_recovery(world).status.reason == Reason.JOB_GONE


def test_a_controller_that_was_away_does_not_start_a_job_whose_definition_it_has_kept() -> None:
    """If the controller started this job, a person who deletes the job later would see it created again."""
    world = kept()
    world.later(3600)
    counted(world)

    assert step(world) == ["delete-job"]


def test_a_definition_of_an_earlier_attempt_makes_nothing_anew() -> None:
    world = kept()
    change(world, attempt=2)
    del world.gangs["llm-uid"]

    assert step(world) == ["recovery-failed"]


def test_a_job_that_was_blocked_before_it_is_deleted_is_made_again() -> None:
    world = lost_gpu(job())
    reached(world, Phase.RESUMING)
    change(world, phase=Phase.BLOCKED, reason=Reason.FRAMEWORK_SILENT, deadline=None)
    world.change_gang(terminal=FAILED)

    assert made(world).what == "recreate-job"


def test_a_large_job_that_is_made_anew_has_the_time_of_a_large_one() -> None:
    world = kept()
    made(world)
    step(world)
    world.gangs["llm-anew-uid"] = msgspec.structs.replace(world.gangs["llm-anew-uid"], size=4000)
    step(world)

    deadline = only_recovery(world).status.deadline
    assert deadline is not None
    assert (deadline - world.now).total_seconds() == 4000 * world.settings.timing.per_rank_s


def test_a_crash_of_the_new_job_before_the_recovery_knows_it_is_its_next_attempt() -> None:
    """For example, the controller was away since it created the job."""
    world = kept()
    made(world)
    assert step(world) == ["recreate-job"]
    anew = world.gangs["llm-anew-uid"]
    twin = cluster(nodes=8).running(gang("new", ranks=4), first_node=4).crash("new", rank=0)
    world.pods[anew.ref.uid] = {
        uid: msgspec.structs.replace(pod, owner_uid=anew.ref.uid) for uid, pod in twin.pods["new-uid"].items()
    }

    recovering(world)
    assert len(world.recoveries) == 1
    step(world)
    step(world)

    status = only_recovery(world).status
    assert (status.attempt, status.gang_uid) == (2, "llm-anew-uid")


def test_a_job_that_fails_for_good_while_it_waits_for_room_is_made_anew_where_it_consents() -> None:
    """This may happen by activeDeadlineSeconds: the job's controller removes the pending pods, and no rank
    was ever lost."""
    world = lost_gpu(job())
    reached(world, Phase.RESUMING)
    step(world)
    start_pods(world, running=False)
    step(world.later(world.settings.timing.resume_deadline_s))
    assert only_recovery(world).status.reason == Reason.NO_CAPACITY
    world.pods["llm-uid"] = {}
    world.change_gang(terminal=Terminal(succeeded=False, reason="DeadlineExceeded"))

    wrote = [step(world) for _ in range(6)]

    assert "delete-job" in str(wrote)
    assert only_recovery(world).status.attempt == 2


# --- time -------------------------------------------------------------------------------------------------


def test_what_tells_kept_failed_pods_from_new_ones_does_not_expire() -> None:
    world = recovering(cluster(nodes=8).running(job(recreate=False)).crash(rank=1))
    advanced(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)
    reached(world, Phase.RESUMING)
    change(world, phase=Phase.SUCCEEDED)
    first = only_recovery(world)
    held = Recovery(
        metadata=msgspec.structs.replace(first.metadata, name="second", uid="second"),
        spec=msgspec.structs.replace(first.spec, number=2),
    )
    world.recoveries["ml/second"] = held
    change(world, "ml/second", phase=Phase.FAILED)
    world.later(40 * 86_400)

    assert expire(world.world(), Retention(), world.now).actions == ()


def test_a_scan_whose_recovery_was_deleted_goes_in_the_end_and_no_other() -> None:
    """Without a recovery, the scan pod's gate would never be lifted."""
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    mine = only_recovery(world)
    for name, label in (("mine", scan_label(mine)), ("orphan", "gone"), ("young", "gone")):
        created = world.now + timedelta(seconds=3000 if name == "young" else 0)
        labels = {SCAN_OF: label}
        pod = Pod(namespace="ml", name=name, uid=name, version="1", labels=labels, created=created)
        world.scans[f"ml/{name}"] = pod
    world.later(3601)

    (removal,) = expire(world.world(), Retention(), world.now).actions

    assert isinstance(removal, Delete)
    assert removal.name == "orphan"
