"""What `rekindle enable` adds to each kind, and what it says will not work in spite of it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from detectors.strict import BadValueError
from recover.consent import OptIn, opt_in
from recover.enable.manifest import Enabled, enabled
from recover.scan_pod import location
from recover.workloads import WORKLOADS
from recover.workloads.patches import reads_environment

OURS = {"configMapRef": {"name": "llm-rekindle", "optional": True}}
CLAIM = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "c"}}
MOUNT = {"name": "ckpt", "mountPath": "/ckpt"}
YES: dict[Any, Any] = {True: 1}
"""What YAML makes of `on: 1`."""
MOUNTED: dict[str, Any] = {"name": "a", "volumeMounts": [MOUNT]}


def template(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    train = {"name": "train", "image": "i", "volumeMounts": [MOUNT]}
    return {"spec": {"containers": list(containers) or [train], "volumes": [CLAIM], **spec}}


def job(*containers: dict[str, Any], spec: Any = None, pod: Any = None, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "llm", **meta},
        "spec": {"template": template(*containers, **(pod or {})), **(spec or {})},
    }


def jobset(**meta: Any) -> dict[str, Any]:
    inner = {"spec": {"template": template()}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llm", **meta},
        "spec": {"replicatedJobs": [{"name": "a", "template": inner}, {"name": "b", "template": inner}]},
    }


def kubeflow(kind: str, restart_policy: str = "OnFailure", **meta: Any) -> dict[str, Any]:
    replica = {"replicas": 2, "restartPolicy": restart_policy, "template": template()}
    replicas = f"{kind.removesuffix('Job').lower()}ReplicaSpecs"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "llm", **meta},
        "spec": {replicas: {"Master": replica, "Worker": replica}},
    }


ALL = [job(), jobset(), *(kubeflow(w.resource.kind) for w in WORKLOADS if w.resource.group == "kubeflow.org")]


def made(*documents: Any, checkpoint: str = "/ckpt") -> Enabled:
    return enabled(documents, "job.yaml", checkpoint)


def notes(document: Any, checkpoint: str = "/ckpt") -> list[str]:
    """On the only job, without where they belong."""
    return [
        note.partition(": document 1: ")[2].partition(": ")[2]
        for note in made(document, checkpoint=checkpoint).notes
    ]


@pytest.mark.parametrize("document", ALL, ids=lambda document: document["kind"])
def test_a_job_of_each_kind_consents_reads_the_environment_and_says_where_its_checkpoints_lie(
    document: dict[str, Any],
) -> None:
    before = copy.deepcopy(document)

    answer = made(document)

    assert (answer.jobs, answer.notes) == (1, ())
    (workload,) = (w for w in WORKLOADS if w.resource.kind == document["kind"])
    gang = workload.parse(msgspec.json.encode(answer.documents[0]))
    assert opt_in(gang, None) is OptIn.ENABLED
    assert reads_environment(gang)
    assert location(gang).at.path == "/ckpt"
    assert document == before, "what was given is not changed"


def test_what_is_there_already_is_not_added_again() -> None:
    once = made(job()).documents

    assert made(*once).documents == once


def test_consent_that_an_annotation_gives_needs_no_label() -> None:
    (document,) = made(job(annotations={"rekindle.dev/auto-recovery": "enabled"})).documents

    assert "labels" not in document["metadata"]


def test_a_label_that_says_no_is_changed_and_other_labels_stay() -> None:
    (document,) = made(job(labels={"team": "nlp", "rekindle.dev/auto-recovery": "disabled"})).documents

    assert document["metadata"]["labels"] == {"team": "nlp", "rekindle.dev/auto-recovery": "enabled"}


def test_other_sources_stay_before_ours_and_init_containers_are_left_alone() -> None:
    theirs = {"secretRef": {"name": "s"}}
    document = job({"name": "a", "envFrom": [theirs]}, {"name": "b", "envFrom": None})
    document["spec"]["template"]["spec"]["initContainers"] = [{"name": "c"}]

    (changed,) = made(document).documents

    spec = changed["spec"]["template"]["spec"]
    assert [c["envFrom"] for c in spec["containers"]] == [[theirs, OURS], [OURS]]
    assert spec["initContainers"] == [{"name": "c"}]


def test_other_objects_are_passed_on_and_named_and_those_of_a_list_are_looked_at() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm"}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}}
    volcano = {**job(), "apiVersion": "batch.volcano.sh/v1alpha1"}
    several = {"apiVersion": "v1", "kind": "List", "items": [service, job()]}

    answer = made(cron, None, several, volcano, "text")

    assert answer.jobs == 1
    assert [d for d in answer.documents if d in (cron, None, volcano, "text")] == [
        cron,
        None,
        volcano,
        "text",
    ]
    assert answer.documents[2]["items"][0] == service
    assert "rekindle.dev/auto-recovery" in answer.documents[2]["items"][1]["metadata"]["labels"]
    passed = "is passed on as it is: no job that Rekindle restarts"
    assert answer.notes == (
        f"job.yaml: document 1: CronJob nightly {passed}",
        f"job.yaml: document 3, item 1: Service llm {passed}",
        f"job.yaml: document 4: Job llm {passed}",
        f"job.yaml: document 5: what stands there {passed}",
    )


@pytest.mark.parametrize("document", [job(), jobset(), kubeflow("PyTorchJob")], ids=lambda d: d["kind"])
def test_a_job_whose_name_the_api_server_makes_is_told_what_to_do(document: dict[str, Any]) -> None:
    document = copy.deepcopy(document)
    document["metadata"] = {"generateName": "llm-"}

    answer = made(document)

    assert "envFrom" not in str(answer.documents)
    if document["kind"] == "PyTorchJob":
        assert answer.notes == (), "its template takes it when it is started again"
    else:
        (note,) = answer.notes
        assert note.startswith(
            f"job.yaml: document 1: {document['kind']} llm-: its name is made by the API server"
        )
        assert "policies.environment" in note


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (job(spec={"backoffLimit": 0}), "with backoffLimit 0 the first failed pod ends it for good"),
        (job(spec={"completions": 9, "parallelism": 2}), "it is not restarted: it works off 9 completions"),
        (job(labels={"kueue.x-k8s.io/queue-name": "q"}), "it is not restarted: Kueue (queue q) decides"),
        (job(annotations={"rekindle.dev/auto-recovery": "observe"}), "it is not restarted: its annotation"),
        (job(annotations={"rekindle.dev/hang-timeout": "soon"}), "annotation rekindle.dev/hang-timeout"),
        (job(MOUNTED | {"env": [{"name": "REKINDLE_RESUME_FROM"}]}), "container a sets REKINDLE_RESUME_FROM"),
        (job(pod={"volumes": [{"name": "ckpt", "emptyDir": {}}]}), "no checkpoint will be verified: /ckpt"),
        (job({"name": "a"}), "no checkpoint will be verified: no volume of Job default/llm is mounted at"),
        (kubeflow("PyTorchJob", "Never"), "Master has restartPolicy Never: any failed rank may end the job"),
        (kubeflow("PyTorchJob", "ExitCode"), "Master has restartPolicy ExitCode: a rank that exits with"),
    ],
)  # fmt: skip
def test_what_will_not_work_is_said(document: dict[str, Any], told: str) -> None:
    found = notes(document)

    assert found[0].startswith(told), found


def test_a_job_that_may_be_made_anew_need_not_fear_its_end() -> None:
    recreate = {"rekindle.dev/on-terminal": "recreate"}

    assert notes(job(spec={"backoffLimit": 0}, annotations=recreate)) == []
    assert notes(kubeflow("PyTorchJob", "Never", annotations=recreate)) == []


def test_without_a_checkpoint_it_is_said_who_decides() -> None:
    (told,) = notes(job(), checkpoint="")

    assert told.startswith("without the annotation rekindle.dev/checkpoint no checkpoint is verified")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**job(), "spec": {"template": {"spec": {"containers": "all"}}}},
         "field spec.template.spec.containers: value 'all': expected `array`, got `str`"),
        ({**job(), "spec": {"parallelism": "two"}}, "field spec.parallelism: value 'two': expected `int`"),
        ({**job(), "spec": {}}, "field spec.template.spec.containers: value (none): expected at least one"),
        ({**job(), "spec": None}, "field spec: value (none): this field is required"),
        ({**job(), "metadata": {}}, "field metadata.name: value (none): this field is required"),
        ({**job(), "metadata": None}, "field metadata.name: value (none): this field is required"),
        ({**job(), "metadata": {"name": "llm", "labels": {"a": True}}},
         "field metadata.labels[a]: value True: expected `str`, got `bool`"),
        ({**job(), **YES}, "field (all): value (an object): expected text as keys"),
        ({**jobset(), "spec": {"replicatedJobs": [{"name": "a"}]}},
         "field spec.replicatedJobs[0].template.spec.template.spec.containers: value (none)"),
        ({**kubeflow("PyTorchJob"), "spec": {"pytorchReplicaSpecs": {"Master": None}}},
         "field spec.pytorchReplicaSpecs.Master.template.spec.containers: value (none)"),
    ],
)  # fmt: skip
def test_a_job_that_is_none_is_refused_with_file_document_field_and_value(
    document: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        made(None, document)

    assert str(caught.value).startswith(f"job.yaml: document 2: {message}"), str(caught.value)
