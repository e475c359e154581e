"""Jobs that their framework would not start again as a whole: Rekindle creates them again if the owner
consents, and otherwise reports this and leaves them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from recover.api import Phase, RecoveryStatus
from recover.api.reasons import Reason
from recover.model import Gang, Refusal, Terminal
from recover.model.actions import Create
from recover.recovery.recreate import FENCE, start_delay_s
from recover.triage.capacity import room
from recover.triage.offers import Supply
from recover.workloads.job import Job
from tests.acting import advanced, end_pods, look, only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang
from tests.facts import names
from tests.recover.triage.test_capacity import GPU, template

FAILED = Terminal(succeeded=False, reason="BackoffLimitExceeded")


def job(*, recreate: bool = True, status: dict[str, Any] | None = None, devices: int = 0) -> Gang:
    """Returns an Indexed Job of four ranks as an API server returns it."""
    annotations = {"rekindle.dev/on-terminal": "recreate"} if recreate else {}
    train = {"name": "train", "image": "x"} | ({"resources": {"limits": {GPU: devices}}} if devices else {})
    tied = {"controller-uid": "llm-uid", "batch.kubernetes.io/job-name": "llm", "team": "nlp"}
    raw = {
        "metadata": {
            "name": "llm",
            "namespace": "ml",
            "uid": "llm-uid",
            "resourceVersion": "10",
            "generation": 3,
            "labels": {"rekindle.dev/auto-recovery": "enabled"},
            "annotations": annotations,
            "finalizers": ["example.com/theirs"],
        },
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "completionMode": "Indexed",
            "backoffLimit": 6,
            "selector": {"matchLabels": {"controller-uid": "llm-uid"}},
            "template": {
                "metadata": {"labels": tied},
                "spec": {"containers": [train], "restartPolicy": "Never"},
            },
        },
        "status": status or {},
    }
    return Job().parse(msgspec.json.encode(raw))


def lost_gpu(gang: Gang) -> Worlds:
    """Returns a world in which node n1, which has a rank of the gang, lost its GPU. The Recovery is
    Planned."""
    return recovering(cluster(nodes=8).running(gang).finding(on="n1"))


def counted(world: Worlds, **status: Any) -> None:
    """Sets the status that the framework reports when the job is to be started again."""
    parsed = job(recreate=bool(world.gangs["llm-uid"].definition), status=status)
    world.change_gang(failures=parsed.failures, done_ranks=parsed.done_ranks)


def reached(world: Worlds, phase: Phase) -> RecoveryStatus:
    return advanced(world, to=phase).status


@pytest.mark.parametrize(
    ("mode", "status", "ended"),
    [
        ("Indexed", {"succeeded": 2, "completedIndexes": "0,2"}, "0,2"),
        ("Indexed", {"completedIndexes": "0", "failedIndexes": "3"}, "0,3"),
        ("NonIndexed", {"succeeded": 2}, "2 of 4"),
        ("NonIndexed", {}, ""),
    ],
)
def test_ranks_that_a_job_counts_as_completed_are_known_with_numbers_and_without(
    mode: str, status: dict[str, Any], ended: str
) -> None:
    spec = {"parallelism": 4, "completions": 4, "completionMode": mode}
    raw = {"metadata": {"name": "llm", "namespace": "ml", "uid": "u"}, "spec": spec, "status": status}

    assert Job().parse(msgspec.json.encode(raw)).done_ranks == ended


def test_a_job_with_counted_failures_is_deleted_and_made_anew_with_its_consent() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=3)
    reached(world, Phase.RESUMING)

    assert step(world) == ["recovery-resuming"]
    kept = only_recovery(world).status.recreation
    assert kept is not None
    assert names(kept.why, 3)
    assert "delete-job" in step(world)
    assert step(world) == []  # the recovery waits until the old job is gone
    del world.gangs["llm-uid"]
    assert step(world) == ["recreate-job"]
    assert step(world) == ["recovery-resuming"]

    status = only_recovery(world).status
    assert status.gang_uid == "llm-anew-uid"
    assert status.recreation is not None
    assert status.recreation.definition == ""
    made = world.gangs["llm-anew-uid"]
    assert (made.suspended, made.mark and made.mark.did) == (False, "resumed")


def test_a_job_that_a_policy_keeps_from_being_made_anew_is_started_where_its_framework_only_waits() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=3)
    reached(world, Phase.RESUMING)
    assert step(world) == ["recovery-resuming"]
    world.refused["jobs/ml/llm"] = Refusal(world.now, f"{FENCE} denied request: no hostPath", may_pass=False)

    assert step(world) == ["recovery-resuming"]
    status = only_recovery(world).status
    assert status.recreation is None
    assert status.reason == Reason.FRAMEWORK_BACKOFF
    assert "no hostPath" in status.message
    world.later(10)
    assert "start-gang" in step(world)


def test_a_terminal_job_that_a_policy_keeps_from_being_made_anew_stays_and_says_so() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    world.change_gang(terminal=FAILED)
    reached(world, Phase.RESUMING)
    assert step(world) == ["recovery-resuming"]
    world.refused["jobs/ml/llm"] = Refusal(world.now, f"{FENCE} denied request: no hostPath", may_pass=False)

    assert step(world) == ["recovery-resuming"]
    status = only_recovery(world).status
    assert status.reason == Reason.WRITE_REFUSED
    assert "no hostPath" in status.message


def test_what_is_made_anew_is_what_people_wrote_without_what_ties_it_to_the_old_uid() -> None:
    world = lost_gpu(job())
    world.change_node("n1", quarantine=None)
    reached(world, Phase.CHOOSING)
    counted(world, failed=1)
    reached(world, Phase.RESUMING)
    step(world)
    del world.gangs["llm-uid"]

    (create,) = [action for action in look(world).actions if isinstance(action, Create)]
    body = create.body

    assert (body["apiVersion"], body["kind"]) == ("batch/v1", "Job")
    assert body["metadata"].keys() == {"name", "namespace", "labels", "annotations"}
    assert "selector" not in body["spec"]
    assert body["spec"]["suspend"] is False
    assert body["spec"]["template"]["metadata"]["labels"] == {"team": "nlp"}
    spec = body["spec"]["template"]["spec"]
    assert spec["containers"][0]["envFrom"][0]["configMapRef"]["name"] == "llm-rekindle-job"
    assert "n1" in str(spec["affinity"])
    assert "status" not in body


def test_a_failed_pod_that_is_not_counted_yet_is_reckoned_with() -> None:
    """The Job controller counts up to a second late, and the stop takes a tenth of a second."""
    world = recovering(cluster(nodes=8).running(job(recreate=False)).crash(rank=1))
    reached(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)

    status = reached(world, Phase.RESUMING)

    assert status.reason == Reason.FRAMEWORK_BACKOFF
    assert names(status.message, 1, 9)


def test_without_consent_the_wait_for_counted_failures_is_said_and_the_deadline_allows_for_it() -> None:
    world = lost_gpu(job(recreate=False))
    reached(world, Phase.CHOOSING)
    counted(world, failed=3)

    status = reached(world, Phase.RESUMING)

    assert status.reason == Reason.FRAMEWORK_BACKOFF
    assert names(status.message, 40, "rekindle.dev/on-terminal")
    assert status.deadline is not None
    waits_s = (status.deadline - world.now).total_seconds()
    assert waits_s == world.settings.timing.resume_deadline_s + 40
    assert "start-gang" in step(world)


def test_without_consent_a_job_with_ended_ranks_stays_stopped_and_a_person_is_called() -> None:
    world = lost_gpu(job(recreate=False))
    reached(world, Phase.CHOOSING)
    counted(world, completedIndexes="0,2-3")
    reached(world, Phase.RESUMING)

    wrote = step(world)

    status = only_recovery(world).status
    assert wrote == ["recovery-escalated"]
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.RANKS_ENDED)
    assert "0,2-3" in status.message


@pytest.mark.parametrize(("recreate", "restarts"), [(False, []), (True, ["llm"])])
def test_a_gang_that_is_about_to_end_is_stopped_only_where_it_can_be_started_again(
    recreate: bool, restarts: list[str]
) -> None:
    """Two ranks have succeeded, and the others may: after a stop the gang could never be started again."""
    world = cluster(nodes=8).running(job(recreate=recreate)).finding(on="n1")

    decision = world.change_gang(done_ranks="0,2").decide()

    assert decision.restarts == restarts
    assert (Reason.RANKS_ENDED in decision.reasons("restart-gang")) is not recreate


def test_a_job_failed_for_good_is_left_alone_without_consent() -> None:
    world = cluster(nodes=8).running(job(recreate=False)).finding(on="n1").change_gang(terminal=FAILED)

    decision = world.decide()

    assert decision.restarts == []
    assert Reason.TERMINAL_JOB in decision.reasons("restart-gang")


def test_a_job_failed_for_good_is_made_anew_with_consent_and_what_is_left_of_it_is_removed() -> None:
    world = cluster(nodes=8).running(job()).finding(on="n1").change_gang(terminal=FAILED)
    recovering(world)
    assert step(world) == ["recovery-stopping"]

    assert step(world) == ["free-pod"] * 4
    reached(world, Phase.RESUMING)
    assert step(world) == ["recovery-resuming"]
    assert "delete-job" in step(world)


def test_a_controller_that_died_between_deletion_and_creation_creates_the_job() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=1)
    reached(world, Phase.RESUMING)
    step(world)
    step(world)
    del world.gangs["llm-uid"]
    world.later(3600)

    assert step(world) == ["recreate-job"]


def test_a_job_that_somebody_else_made_first_is_theirs() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=1)
    reached(world, Phase.RESUMING)
    step(world)
    theirs = job()
    del world.gangs["llm-uid"]
    world.gangs["theirs"] = msgspec.structs.replace(
        theirs, ref=msgspec.structs.replace(theirs.ref, uid="theirs")
    )

    assert step(world) == ["recovery-escalated"]
    assert only_recovery(world).status.reason == Reason.FOREIGN_OWNER


def test_a_deletion_that_a_finalizer_holds_is_said_and_goes_on_when_it_is_gone() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=1)
    reached(world, Phase.RESUMING)
    step(world)
    step(world)
    world.later(world.settings.timing.resume_deadline_s + 1)

    step(world)
    assert only_recovery(world).status.reason == Reason.DELETION_HELD
    assert step(world) == []

    del world.gangs["llm-uid"]
    step(world)
    step(world)
    status = only_recovery(world).status
    assert (status.reason, status.gang_uid) == ("", "llm-anew-uid")
    assert status.deadline is not None
    assert status.deadline > world.now


def test_a_job_that_a_person_deletes_is_not_made_anew() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=1)
    del world.gangs["llm-uid"]

    step(world)

    assert only_recovery(world).status.reason == Reason.JOB_GONE


def test_a_definition_that_would_not_fit_is_not_deleted() -> None:
    world = lost_gpu(job())
    huge = msgspec.json.decode(world.gangs["llm-uid"].definition)
    huge["metadata"]["annotations"]["theirs"] = "x" * 300_000
    world.change_gang(definition=msgspec.json.encode(huge))
    reached(world, Phase.CHOOSING)
    counted(world, completedIndexes="1")
    reached(world, Phase.RESUMING)

    step(world)

    status = only_recovery(world).status
    assert status.phase is Phase.ESCALATED
    assert names(status.message, 262144)


def test_the_job_made_anew_keeps_its_history_so_that_a_loop_still_ends() -> None:
    world = lost_gpu(job())
    reached(world, Phase.CHOOSING)
    counted(world, failed=1)
    reached(world, Phase.RESUMING)
    for _ in range(2):
        step(world)
    del world.gangs["llm-uid"]
    for _ in range(2):
        step(world)

    history = world.world().history("llm-anew-uid")

    assert [recovery.spec.number for recovery in history] == [1]
    assert world.world().active_recovery("llm-anew-uid") is not None


@pytest.mark.parametrize(("failed", "wait_s"), [(0, 0), (1, 10), (2, 20), (4, 80), (7, 600), (5000, 600)])
def test_the_job_controllers_wait_doubles_with_each_failed_pod_up_to_ten_minutes(
    failed: int, wait_s: float
) -> None:
    assert start_delay_s(failed) == wait_s


def test_a_job_that_works_off_a_queue_is_no_gang_and_is_left_alone() -> None:
    """A Job never runs its completed indexes again, so after a restart the job would stay stopped."""
    raw = {
        "metadata": {"name": "llm", "namespace": "ml", "uid": "llm-uid", "resourceVersion": "1"},
        "spec": {"parallelism": 4, "completions": 400, "template": {"spec": {"containers": []}}},
    }
    queue = Job().parse(msgspec.json.encode(raw))
    world = cluster(nodes=8).running(job()).finding(on="n1").change_gang(unsupported=queue.unsupported)

    decision = world.decide()

    assert (decision.restarts, decision.cordons) == ([], ["n1"])
    assert decision.reasons("restart-gang") == [Reason.UNSUPPORTED]


def test_who_wrote_the_suspend_field_last_is_named() -> None:
    raw = {
        "metadata": {
            "name": "llm",
            "namespace": "ml",
            "uid": "u",
            "resourceVersion": "1",
            "managedFields": [
                {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:parallelism": {}}}},
                {"manager": "argocd-controller", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
                {"manager": "job", "subresource": "status", "fieldsV1": {"f:status": {"f:suspend": {}}}},
            ],
        },
        "spec": {"template": {"spec": {"containers": []}}},
    }
    assert Job().parse(msgspec.json.encode(raw)).suspend_writer == "argocd-controller"


def test_a_person_who_starts_the_job_again_is_let_be_and_helped_at_the_next_fault() -> None:
    world = lost_gpu(job(recreate=False))
    reached(world, Phase.STOPPING)
    step(world)
    world.change_gang(suspended=False, suspend_writer="kubectl-patch")
    step(world)
    assert only_recovery(world).status.reason == Reason.HELD

    world.later(600)
    world.crash(rank=2)

    assert world.decide().restarts == ["llm"]


def test_a_stop_that_was_flipped_back_is_not_tried_twice_and_names_who_did_it() -> None:
    world = lost_gpu(job(recreate=False))
    reached(world, Phase.STOPPING)
    step(world)
    world.change_gang(suspended=False, suspend_writer="argocd-controller")
    step(world)
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER)
    assert names(status.message, "argocd-controller")

    world.later(600)
    world.crash(rank=2)
    decision = world.decide()

    assert decision.restarts == []
    (denied,) = [a for i in decision.incidents for a in i.status.actions if a.action == "restart-gang"][-1:]
    assert denied.reason == Reason.FOREIGN_OWNER
    assert names(denied.message, "argocd-controller", only_recovery(world).metadata.name)


def test_the_wait_runs_from_the_end_of_the_last_failed_pod_and_goes_on_while_the_job_is_stopped() -> None:
    world = cluster(nodes=8).running(job(recreate=False)).crash(rank=1, ago_s=1)
    recovering(world)
    for _ in range(3):
        step(world)
    end_pods(world, keep_failed=True)
    counted(world, failed=1)
    world.later(4)
    assert names(reached(world, Phase.RESUMING).message, 5)

    later = cluster(nodes=8).running(job(recreate=False)).crash(rank=1, ago_s=1)
    recovering(later)
    for _ in range(3):
        step(later)
    end_pods(later, keep_failed=True)
    counted(later, failed=1)
    later.later(12)
    assert reached(later, Phase.RESUMING).reason == Reason.CHECKPOINT_UNVERIFIED


def test_a_job_that_is_about_to_fail_for_good_counts_as_failed() -> None:
    conditions = [{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}]

    assert job(status={"conditions": conditions}).terminal == FAILED


def test_a_job_that_is_being_created_again_keeps_its_places() -> None:
    """Two Jobs may be deleted at the same moment, and come back with room for only one of them."""
    world = lost_gpu(job(devices=8))
    reached(world, Phase.CHOOSING)
    counted(world, failed=3)
    reached(world, Phase.RESUMING)
    for name in world.nodes:
        world.change_node(name, allocatable={GPU: 8}, capacity={GPU: 8})
    world.gangs["bert-uid"] = gang("bert", templates={"Worker": template()})

    def is_free() -> bool:
        return room(Supply(world.world()), world.gangs["bert-uid"], world.now).fits

    assert is_free()
    step(world)
    assert "delete-job" in step(world)
    world.change_gang(deleting=True)
    assert not is_free()
    del world.gangs["llm-uid"]
    assert not is_free()
    step(world)
    assert not is_free()
    step(world)
    assert not is_free()
