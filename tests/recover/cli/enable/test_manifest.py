"""Tests what `rekindle enable` adds to each kind of job, and which jobs it refuses."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from detectors.text.strict import BadValueError
from recover.cli.enable_manifest import Enabled, enabled
from recover.policy.consent import OptIn, opt_in
from recover.recovery.scan_place import location
from recover.workloads import WORKLOADS
from recover.workloads.patches import reads_environment
from tests.facts import each_names, missing

OURS = {"configMapRef": {"name": "llm-rekindle-job", "optional": True}}
CLAIM = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "c"}}
MOUNT = {"name": "ckpt", "mountPath": "/ckpt"}
YES: dict[Any, Any] = {True: 1}
"""Mapping that YAML makes of `on: 1`."""


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


def kubeflow(kind: str, **meta: Any) -> dict[str, Any]:
    replica = {"replicas": 2, "restartPolicy": "OnFailure", "template": template()}
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


OF_KUBEFLOW = [document for document in ALL if document["apiVersion"] == "kubeflow.org/v1"]


@pytest.mark.parametrize("document", ALL, ids=lambda document: document["kind"])
def test_a_job_of_each_kind_consents_names_its_checkpoints_and_reads_the_environment_or_gets_it_at_a_start(
    document: dict[str, Any],
) -> None:
    before = copy.deepcopy(document)

    answer = made(document)

    assert (answer.jobs, answer.notes) == (1, ())
    (workload,) = (w for w in WORKLOADS if w.resource.kind == document["kind"])
    gang = workload.parse(msgspec.json.encode(answer.documents[0]))
    assert opt_in(gang, None) is OptIn.ENABLED
    assert reads_environment(gang) is not workload.start_brings_environment
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


def test_an_annotation_that_says_no_is_changed_since_it_would_overrule_a_label() -> None:
    (document,) = made(job(annotations={"rekindle.dev/auto-recovery": "true"})).documents

    assert document["metadata"]["annotations"]["rekindle.dev/auto-recovery"] == "enabled"
    assert "labels" not in document["metadata"]


def test_another_checkpoint_than_the_persons_is_told() -> None:
    answer = made(job(annotations={"rekindle.dev/checkpoint": "/data;format=orbax"}), checkpoint="/ckpt")

    assert answer.documents[0]["metadata"]["annotations"]["rekindle.dev/checkpoint"] == "/ckpt"
    (note,) = answer.notes
    assert not missing(note, "replaced the annotation rekindle.dev/checkpoint: '/data;format=orbax'")


@pytest.mark.parametrize("optional", [{}, {"optional": True}])
def test_a_source_that_names_the_configmap_of_another_kind_gets_the_name_of_ours(
    optional: dict[str, Any],
) -> None:
    wrong = {"configMapRef": {"name": "llm-rekindle-jobset", **optional}}

    answer = made(job({"name": "train", "envFrom": [wrong]}), checkpoint="")

    (train,) = answer.documents[0]["spec"]["template"]["spec"]["containers"]
    assert train["envFrom"] == [OURS]
    assert each_names(answer.notes, ("train", "llm-rekindle-jobset", "llm-rekindle-job"))


def test_a_kind_whose_start_brings_the_envfrom_keeps_no_wrong_name_either() -> None:
    document = copy.deepcopy(kubeflow("PyTorchJob"))
    wrong = {"configMapRef": {"name": "llm-rekindle-job"}}
    document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = template(
        {"name": "t", "envFrom": [wrong]}
    )

    (changed,) = made(document).documents

    (train,) = changed["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert train["envFrom"] == [{"configMapRef": {"name": "llm-rekindle-pytorchjob", "optional": True}}]


def test_other_sources_stay_before_ours_and_init_containers_are_left_alone() -> None:
    theirs = {"secretRef": {"name": "s"}}
    document = job({"name": "a", "envFrom": [theirs]}, {"name": "b", "envFrom": None})
    document["spec"]["template"]["spec"]["initContainers"] = [{"name": "c"}]

    (changed,) = made(document).documents

    spec = changed["spec"]["template"]["spec"]
    assert [c["envFrom"] for c in spec["containers"]] == [[theirs, OURS], [OURS]]
    assert spec["initContainers"] == [{"name": "c"}]


@pytest.mark.parametrize("name", ["llm-rekindle-job", "llm-rekindle"])
def test_a_source_without_which_no_pod_would_start_becomes_optional_and_is_named(name: str) -> None:
    required = {"configMapRef": {"name": name, "optional": False}}
    document = job({"name": "train", "image": "i", "envFrom": [required], "volumeMounts": [MOUNT]})

    answer = made(document)

    (train,) = answer.documents[0]["spec"]["template"]["spec"]["containers"]
    assert {"configMapRef": {"name": name, "optional": True}} in train["envFrom"]
    assert all(source["configMapRef"]["optional"] for source in train["envFrom"])
    assert not missing(answer.notes[0], "optional: true", name, "train")


@pytest.mark.parametrize("name", ["llm-rekindle-job", "llm-rekindle"])
def test_the_same_correction_in_two_templates_is_told_with_the_place_of_each(name: str) -> None:
    document = copy.deepcopy(jobset())
    for one in document["spec"]["replicatedJobs"]:
        train = {"name": "train", "envFrom": [{"configMapRef": {"name": name}}]}
        one["template"] = {"spec": {"template": template(train)}}

    assert each_names(made(document).notes, ("replicatedJobs[0]", name), ("replicatedJobs[1]", name))


@pytest.mark.parametrize("document", OF_KUBEFLOW, ids=lambda document: document["kind"])
def test_a_job_whose_start_brings_the_envfrom_keeps_its_containers_as_they_are(
    document: dict[str, Any],
) -> None:
    (changed,) = made(document).documents

    assert changed["spec"] == document["spec"]


@pytest.mark.parametrize("document", OF_KUBEFLOW, ids=lambda document: document["kind"])
def test_a_required_source_becomes_optional_in_a_job_whose_start_brings_the_envfrom_too(
    document: dict[str, Any],
) -> None:
    document = copy.deepcopy(document)
    name = f"llm-rekindle-{document['kind'].lower()}"
    (replicas,) = document["spec"].values()
    train = {"name": "train", "envFrom": [{"configMapRef": {"name": name}}]}
    replicas["Worker"] = {**replicas["Worker"], "template": template(train)}

    answer = made(document)

    ((changed,),) = [job["spec"].values() for job in answer.documents]
    ours = {"configMapRef": {"name": name, "optional": True}}
    assert changed["Worker"]["template"]["spec"]["containers"] == [{**train, "envFrom": [ours]}]
    assert changed["Master"] == replicas["Master"]
    assert each_names(answer.notes, ("optional: true", name, "train"))


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
    assert each_names(
        answer.notes,
        ("job.yaml", "document 1", "CronJob nightly"),
        ("job.yaml", "document 3", "item 1", "Service llm"),
        ("job.yaml", "document 4", "Job llm"),
        ("job.yaml", "document 5"),
    )


@pytest.mark.parametrize("document", [job(), jobset(), kubeflow("PyTorchJob")], ids=lambda d: d["kind"])
def test_a_job_whose_name_the_api_server_makes_cannot_name_its_environment(document: dict[str, Any]) -> None:
    document = copy.deepcopy(document)
    document["metadata"] = {"generateName": "llm-"}

    assert "envFrom" not in str(made(document).documents)


def reading(sources: Any) -> dict[str, Any]:
    return job({"name": "train", "envFrom": sources})


def test_a_source_that_names_nothing_is_no_obstacle() -> None:
    (changed,) = made(reading([{"configMapRef": None}])).documents

    (container,) = changed["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": None}, OURS]


@pytest.mark.parametrize(
    ("document", "field", "value", "expected"),
    [
        ({**job(), "spec": {"template": {"spec": {"containers": "all"}}}},
         "spec.template.spec.containers", "'all'", "`array`"),
        ({**job(), "spec": {"parallelism": "two"}}, "spec.parallelism", "'two'", "`int`"),
        ({**job(), "spec": {}}, "spec.template.spec.containers", "(none)", ""),
        ({**job(), "spec": None}, "spec", "(none)", ""),
        ({**job(), "metadata": {}}, "metadata.name", "(none)", ""),
        ({**job(), "metadata": None}, "metadata.name", "(none)", ""),
        ({**job(), "metadata": {"name": "llm", "labels": {"a": True}}},
         "metadata.labels[a]", "True", "`str`"),
        ({**job(), **YES}, "", "(an object)", ""),
        ({**jobset(), "spec": {"replicatedJobs": [{"name": "a"}]}},
         "spec.replicatedJobs[0].template.spec.template.spec.containers", "(none)", ""),
        ({**kubeflow("PyTorchJob"), "spec": {"pytorchReplicaSpecs": {"Master": None}}},
         "spec.pytorchReplicaSpecs.Master.template.spec.containers", "(none)", ""),
        (reading(["ours"]), "envFrom[0]", "'ours'", "`object`"),
        (reading({"configMapRef": {"name": "a"}}), "envFrom", "{'configMapRef': {'name': 'a'}}", "`array"),
        (reading([{"configMapRef": "a"}]), "envFrom[0].configMapRef", "'a'", "`object"),
    ],
)  # fmt: skip
def test_a_job_that_is_none_is_refused_with_file_document_field_and_value(
    document: dict[str, Any], field: str, value: str, expected: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        made(None, document)

    error = caught.value
    assert (error.file, error.where) == ("job.yaml", "document 2")
    assert (error.field, error.value) == (field, value)
    assert expected in error.expected
    assert error.expected
