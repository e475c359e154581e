"""Tests stops and starts that test the fields that the controller has read of a job, in place of the job's
version."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chaos.apiserver.patching import PatchError, json_patch, merge_patch
from recover.model import Mark
from recover.model.actions import Patch
from recover.workloads import Workload
from recover.workloads.job import Job
from recover.workloads.jobset import JobSet
from recover.workloads.kubeflow import KubeflowJob
from recover.workloads.paddlejob import PaddleJob
from recover.workloads.pytorchjob import PyTorchJob
from recover.workloads.tfjob import TFJob

KUBEFLOW = [PyTorchJob(), PaddleJob(), TFJob()]
STOPPED = Mark(recovery="r", attempt=1, did="stopped")
RESUMED = Mark(recovery="r", attempt=1, did="resumed", avoided=("n1",))
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
AFFINITY = {
    "podAntiAffinity": {"x": 1},
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}},
}
RESTARTING = {"type": "Restarting", "status": "True"}


def job(workload: KubeflowJob, **parts: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "train", "image": "i"}], "affinity": AFFINITY, "hostNetwork": True}
    roles = {role: {"replicas": 1, "template": {"spec": pod}} for role in ("Master", "Worker")}
    metadata = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3", "generation": 2}
    return {
        "metadata": metadata,
        "spec": {
            "runPolicy": {"suspend": False, "ttlSecondsAfterFinished": 9},
            workload.replica_specs: roles,
        },
        "status": {"conditions": [{"type": "Running", "status": "True"}]},
        **parts,
    }


def patches(workload: Workload, there: dict[str, Any]) -> list[Patch]:
    gang = workload.parse(msgspec.json.encode(there))
    return [*workload.stop(gang, STOPPED), *workload.start(gang, RESUMED)]


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
@pytest.mark.parametrize("annotations", [{}, {"theirs": "1"}], ids=["bare", "annotated"])
@pytest.mark.parametrize("has_policy", [True, False])
def test_both_forms_of_a_stop_or_start_make_the_same_of_a_job(
    workload: KubeflowJob, annotations: dict[str, str], has_policy: bool
) -> None:
    there = job(workload)
    if annotations:
        there["metadata"]["annotations"] = annotations
    if not has_policy:
        del there["spec"]["runPolicy"]

    for patch in patches(workload, there):
        assert json_patch(there, list(patch.operations)) == merge_patch(there, patch.body)
        assert (patch.uid, patch.version) == ("u", "3")


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
def test_the_operators_own_counters_and_conditions_are_no_conflict(workload: KubeflowJob) -> None:
    there = job(workload)
    status = {"conditions": [RESTARTING], "replicaStatuses": {"Worker": {"failed": 1}}}
    newer = {**there, "metadata": {**there["metadata"], "resourceVersion": "9"}, "status": status}

    for patch in patches(workload, there):
        changed = json_patch(newer, list(patch.operations))
        assert changed == {
            **merge_patch(there, patch.body),
            "metadata": changed["metadata"],
            "status": status,
        }
        assert changed["metadata"]["resourceVersion"] == "9"


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"uid": "another"}},
        {"metadata": {"generation": 3}},
        {"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}},
        {"metadata": {"labels": {"rekindle.dev/auto-recovery": "disabled"}}},
        {"metadata": {"annotations": {"rekindle.dev/hold": "true"}}},
        {"metadata": {"ownerReferences": [{"kind": "AppWrapper", "controller": True}]}},
        {"status": {"completionTime": "2026-11-21T12:00:00Z"}},
    ],
    ids=lambda change: ".".join(f"{part}.{next(iter(change[part]))}" for part in change),
)
def test_whatever_a_decision_reads_is_a_conflict(workload: KubeflowJob, change: dict[str, Any]) -> None:
    there = job(workload)

    for patch in patches(workload, there):
        with pytest.raises(PatchError):
            json_patch(merge_patch(there, change), list(patch.operations))


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"generation": None}},
        {"metadata": {"ownerReferences": [{"kind": "X", "name": "x", "uid": "y", "apiVersion": "v1"}]}},
        {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
    ],
    ids=["no generation", "owned", "a start is taken up"],
)
def test_where_tests_cannot_tell_all_that_is_read_the_version_does(
    workload: KubeflowJob, change: dict[str, Any]
) -> None:
    for patch in patches(workload, merge_patch(job(workload), change)):
        assert (patch.operations, patch.version) == ((), "3")


@pytest.mark.parametrize("workload", [Job(), JobSet()], ids=lambda w: w.resource.kind)
def test_a_kind_whose_status_decisions_read_in_many_fields_keeps_to_the_version(workload: Workload) -> None:
    metadata = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3", "generation": 2}

    for patch in patches(workload, {"metadata": metadata, "spec": {}}):
        assert (patch.operations, patch.version) == ((), "3")
