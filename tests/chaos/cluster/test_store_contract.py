"""The contract of any API server for Rekindle. These tests know only the `Cluster` protocol."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import JsonPatch
from recover.k8s.kinds import CONFIGMAPS, EVENTS, JOBS, NODES, PODS
from recover.kube.cluster import Cluster

NS = "default"


def config(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x"}], **spec}}


def job(name: str) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}}


def read(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


async def test_a_created_object_has_uid_version_and_time(cluster: Cluster) -> None:
    meta = read(await cluster.create(CONFIGMAPS, config("a", x="1"), NS))["metadata"]

    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["namespace"] == NS


async def test_versions_grow_with_every_write(cluster: Cluster) -> None:
    versions = [
        int(read(await cluster.create(CONFIGMAPS, config(n), NS))["metadata"]["resourceVersion"])
        for n in "abc"
    ]
    changed = read(await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=NS))
    versions.append(int(changed["metadata"]["resourceVersion"]))

    assert versions == sorted(set(versions))


async def test_creating_a_name_twice_is_refused_as_already_existing(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a"), NS)
    with pytest.raises(ApiError) as refused:
        await cluster.create(CONFIGMAPS, config("a"), NS)
    assert refused.value.exists


async def test_creating_in_a_namespace_that_is_not_there_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        await cluster.create(CONFIGMAPS, config("a"), "nowhere")
    assert refused.value.not_found
    assert "nowhere" in refused.value.message


async def test_generate_name_makes_different_names(cluster: Cluster) -> None:
    body = {"metadata": {"generateName": "part-"}}
    names = [read(await cluster.create(CONFIGMAPS, body, NS))["metadata"]["name"] for _ in range(2)]
    assert all(name.startswith("part-") and len(name) > 5 for name in names)
    assert len(set(names)) == 2


async def test_a_missing_object_is_not_found(cluster: Cluster) -> None:
    for attempt in (
        cluster.get(CONFIGMAPS, "a", NS),
        cluster.patch(CONFIGMAPS, "a", {}, namespace=NS),
        cluster.delete(CONFIGMAPS, "a", namespace=NS),
    ):
        with pytest.raises(ApiError) as refused:
            await attempt
        assert refused.value.not_found


async def test_a_name_that_kubernetes_would_refuse_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        await cluster.create(CONFIGMAPS, config("Not_A_Name"), NS)
    assert (refused.value.status, "metadata.name" in refused.value.message) == (422, True)


async def test_a_patch_with_a_stale_version_is_a_conflict_and_writes_nothing(cluster: Cluster) -> None:
    old = read(await cluster.create(CONFIGMAPS, config("a"), NS))["metadata"]["resourceVersion"]
    await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=NS)

    with pytest.raises(ApiError) as refused:
        await cluster.patch(
            CONFIGMAPS, "a", {"metadata": {"resourceVersion": old}, "data": {"x": "2"}}, namespace=NS
        )

    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    assert read(await cluster.get(CONFIGMAPS, "a", NS))["data"] == {"x": "1"}


async def test_a_patch_with_a_wrong_uid_is_invalid(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a"), NS)
    with pytest.raises(ApiError) as refused:
        await cluster.patch(CONFIGMAPS, "a", {"metadata": {"uid": "another"}}, namespace=NS)
    assert (refused.value.status, refused.value.stale) == (422, True)


async def test_a_merge_patch_removes_what_is_null_and_keeps_the_rest(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a", x="1", y="2"), NS)
    answer = await cluster.patch(CONFIGMAPS, "a", {"data": {"x": None, "z": "3"}}, namespace=NS)
    assert read(answer)["data"] == {"y": "2", "z": "3"}


async def test_a_json_patch_applies_only_if_its_tests_hold(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a", x="1"), NS)
    change = {"op": "replace", "path": "/data/x", "value": "2"}

    test = {"op": "test", "path": "/data/x", "value": "other"}
    with pytest.raises(ApiError) as refused:
        await cluster.patch(CONFIGMAPS, "a", [test, change], namespace=NS, patch_type=JsonPatch)
    assert refused.value.status == 422

    test = {"op": "test", "path": "/data/x", "value": "1"}
    answer = await cluster.patch(CONFIGMAPS, "a", [test, change], namespace=NS, patch_type=JsonPatch)
    assert read(answer)["data"] == {"x": "2"}


async def test_a_json_patch_tests_for_null_what_must_be_missing(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a", x="1"), NS)
    missing = {"op": "test", "path": "/metadata/deletionTimestamp", "value": None}
    there = {"op": "test", "path": "/data/x", "value": None}
    nowhere = {"op": "test", "path": "/nowhere/x", "value": None}

    await cluster.patch(CONFIGMAPS, "a", [missing], namespace=NS, patch_type=JsonPatch)
    for test in (there, nowhere):
        with pytest.raises(ApiError) as refused:
            await cluster.patch(CONFIGMAPS, "a", [test], namespace=NS, patch_type=JsonPatch)
        assert refused.value.status == 422


async def test_a_json_patch_of_what_is_not_there_is_invalid(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a", x="1"), NS)
    for change in ({"op": "remove", "path": "/data/y"}, {"op": "replace", "path": "/data/y/z", "value": ""}):
        with pytest.raises(ApiError) as refused:
            await cluster.patch(CONFIGMAPS, "a", [change], namespace=NS, patch_type=JsonPatch)
        assert refused.value.status == 422


async def test_a_json_patch_may_test_the_version_that_it_was_made_for(cluster: Cluster) -> None:
    version = read(await cluster.create(CONFIGMAPS, config("a", x="1"), NS))["metadata"]["resourceVersion"]
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/annotations", "value": {"by": "us"}},
    ]
    answer = read(await cluster.patch(CONFIGMAPS, "a", patch, namespace=NS, patch_type=JsonPatch))
    assert answer["metadata"]["annotations"] == {"by": "us"}
    with pytest.raises(ApiError) as refused:
        await cluster.patch(CONFIGMAPS, "a", patch, namespace=NS, patch_type=JsonPatch)
    assert refused.value.status == 422


async def test_a_patch_cannot_rename(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("a"), NS)
    with pytest.raises(ApiError) as refused:
        await cluster.patch(CONFIGMAPS, "a", {"metadata": {"name": "b"}}, namespace=NS)
    assert refused.value.status == 400


async def test_a_patch_that_changes_nothing_writes_nothing(cluster: Cluster) -> None:
    before = read(await cluster.create(CONFIGMAPS, config("a", x="1"), NS))
    after = read(await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=NS))
    empty = read(await cluster.patch(CONFIGMAPS, "a", {}, namespace=NS))
    assert before == after == empty


async def test_creation_drops_the_status(cluster: Cluster) -> None:
    made = read(await cluster.create(JOBS, {**job("j"), "status": {"failed": 3}}, NS))
    assert made.get("status", {}).get("failed") is None


async def test_a_patch_of_the_object_leaves_the_status_alone(cluster: Cluster) -> None:
    await cluster.create(JOBS, job("j"), NS)
    body = {"spec": {"parallelism": 2}, "status": {"failed": 3}}
    answer = read(await cluster.patch(JOBS, "j", body, namespace=NS))
    assert answer["spec"]["parallelism"] == 2
    assert answer.get("status", {}).get("failed") is None


async def test_a_patch_of_the_status_leaves_everything_else_alone(cluster: Cluster) -> None:
    await cluster.create(JOBS, job("j"), NS)
    body = {"spec": {"parallelism": 2}, "status": {"failed": 3}}
    answer = read(await cluster.patch(JOBS, "j", body, namespace=NS, subresource="status"))
    assert answer["spec"]["parallelism"] == 1
    assert answer["status"]["failed"] == 3


async def test_the_generation_counts_changes_of_the_spec_only(cluster: Cluster) -> None:
    made = read(await cluster.create(JOBS, job("j"), NS))
    await cluster.patch(JOBS, "j", {"status": {"failed": 1}}, namespace=NS, subresource="status")
    await cluster.patch(JOBS, "j", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    same = read(await cluster.get(JOBS, "j", NS))["metadata"]["generation"]
    changed = read(await cluster.patch(JOBS, "j", {"spec": {"parallelism": 3}}, namespace=NS))
    assert (made["metadata"]["generation"], same, changed["metadata"]["generation"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("given", "completions"),
    [({}, 1), ({"parallelism": 2}, None), ({"completions": 3}, 3), ({"parallelism": 2, "completions": 3}, 3)],
)
async def test_a_job_with_a_parallelism_alone_is_a_work_queue(
    cluster: Cluster, given: dict[str, int], completions: int | None
) -> None:
    body = job("j")
    body["spec"] |= given
    made = read(await cluster.create(JOBS, body, NS))["spec"]
    assert (made["parallelism"], made.get("completions")) == (given.get("parallelism", 1), completions)


async def test_an_indexed_job_needs_completions(cluster: Cluster) -> None:
    body = job("j")
    body["spec"] |= {"parallelism": 2, "completionMode": "Indexed"}
    with pytest.raises(ApiError) as refused:
        await cluster.create(JOBS, body, NS)
    assert (refused.value.status, "spec.completions" in refused.value.message) == (422, True)


async def test_the_environment_of_a_suspended_job_cannot_change_but_its_affinity_can(
    cluster: Cluster,
) -> None:
    await cluster.create(JOBS, job("j"), NS)
    containers = [{"name": "main", "image": "x", "env": [{"name": "A", "value": "1"}]}]
    with pytest.raises(ApiError) as refused:
        await cluster.patch(
            JOBS, "j", {"spec": {"template": {"spec": {"containers": containers}}}}, namespace=NS
        )
    assert (refused.value.status, "spec.template" in refused.value.message) == (422, True)

    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}}}}}
    answer = read(await cluster.patch(JOBS, "j", affinity, namespace=NS))
    assert answer["spec"]["template"]["spec"]["affinity"]["nodeAffinity"] == required


async def test_a_delete_with_a_failed_precondition_is_a_conflict(cluster: Cluster) -> None:
    meta = read(await cluster.create(CONFIGMAPS, config("a"), NS))["metadata"]
    await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=NS)
    for wrong in ({"uid": "another"}, {"resource_version": meta["resourceVersion"]}):
        with pytest.raises(ApiError) as refused:
            await cluster.delete(CONFIGMAPS, "a", namespace=NS, **wrong)
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    await cluster.delete(CONFIGMAPS, "a", namespace=NS, uid=meta["uid"])


async def test_a_pod_on_a_node_is_gone_only_when_its_kubelet_says_so(cluster: Cluster) -> None:
    await cluster.create(PODS, pod("p", nodeName="n1", terminationGracePeriodSeconds=7), NS)
    await cluster.delete(PODS, "p", namespace=NS)
    dying = read(await cluster.get(PODS, "p", NS))["metadata"]
    assert dying["deletionGracePeriodSeconds"] == 7
    assert dying["deletionTimestamp"]

    await cluster.delete(PODS, "p", namespace=NS, uid=dying["uid"], grace_s=0)
    with pytest.raises(ApiError) as refused:
        await cluster.get(PODS, "p", NS)
    assert refused.value.not_found


async def test_a_wrong_uid_is_refused_for_the_status_of_a_pod(cluster: Cluster) -> None:
    await cluster.create(PODS, pod("p", nodeName="n1"), NS)
    change = {"metadata": {"uid": "another"}, "status": {"phase": "Failed"}}
    with pytest.raises(ApiError) as refused:
        await cluster.patch(PODS, "p", change, namespace=NS, subresource="status")
    assert (refused.value.status, refused.value.stale) == (422, True)


async def test_a_pod_that_has_failed_is_gone_at_once_when_deleted(cluster: Cluster) -> None:
    """This frees the pods of a dead node, because nobody is left to confirm their end."""
    await cluster.create(PODS, pod("p", nodeName="n1"), NS)
    await cluster.patch(PODS, "p", {"status": {"phase": "Failed"}}, namespace=NS, subresource="status")
    await cluster.delete(PODS, "p", namespace=NS)
    assert (await cluster.list(PODS, namespace=NS)).items == []


async def test_a_pod_that_is_not_on_a_node_is_gone_at_once(cluster: Cluster) -> None:
    await cluster.create(PODS, pod("p", schedulingGates=[{"name": "hold"}]), NS)
    await cluster.delete(PODS, "p", namespace=NS)
    assert (await cluster.list(PODS, namespace=NS)).items == []


async def test_a_finalizer_keeps_an_object_until_it_is_taken_off(cluster: Cluster) -> None:
    body = config("a")
    body["metadata"]["finalizers"] = ["test/hold"]
    await cluster.create(CONFIGMAPS, body, NS)
    await cluster.delete(CONFIGMAPS, "a", namespace=NS)
    assert read(await cluster.get(CONFIGMAPS, "a", NS))["metadata"]["deletionTimestamp"]

    await cluster.patch(CONFIGMAPS, "a", {"metadata": {"finalizers": None}}, namespace=NS)
    with pytest.raises(ApiError) as refused:
        await cluster.get(CONFIGMAPS, "a", NS)
    assert refused.value.not_found


async def test_what_is_being_deleted_gains_no_finalizer(cluster: Cluster) -> None:
    body = config("a")
    body["metadata"]["finalizers"] = ["test/hold"]
    await cluster.create(CONFIGMAPS, body, NS)
    await cluster.delete(CONFIGMAPS, "a", namespace=NS)
    more = {"metadata": {"finalizers": ["test/hold", "test/more"]}}
    with pytest.raises(ApiError) as refused:
        await cluster.patch(CONFIGMAPS, "a", more, namespace=NS)
    assert refused.value.status == 422


async def test_a_pod_may_lose_scheduling_gates_but_not_gain_them(cluster: Cluster) -> None:
    await cluster.create(PODS, pod("p", schedulingGates=[{"name": "hold"}]), NS)
    with pytest.raises(ApiError) as refused:
        await cluster.patch(PODS, "p", {"spec": {"schedulingGates": [{"name": "more"}]}}, namespace=NS)
    assert refused.value.status == 422
    answer = read(await cluster.patch(PODS, "p", {"spec": {"schedulingGates": None}}, namespace=NS))
    assert "schedulingGates" not in answer["spec"]


async def test_a_node_keeps_the_status_that_it_is_registered_with(cluster: Cluster) -> None:
    status = {"allocatable": {"nvidia.com/gpu": "8"}, "nodeInfo": {"bootID": "b"}}
    made = read(await cluster.create(NODES, {"metadata": {"name": "n1"}, "status": status}))
    assert made["status"]["allocatable"] == status["allocatable"]
    assert made["status"]["nodeInfo"]["bootID"] == "b"


async def test_an_event_is_taken_once(cluster: Cluster) -> None:
    body = {
        "metadata": {"name": "llm.1a2b", "namespace": NS},
        "eventTime": "2026-11-21T10:00:00.123456Z",
        "type": "Warning",
        "reason": "RecoveryBlocked",
        "note": "x" * 1024,
        "action": "RecoveryBlocked",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "namespace": NS, "uid": "u"},
        "reportingController": "rekindle.dev/controller",
        "reportingInstance": "rekindle-controller",
    }
    await cluster.create(EVENTS, body, NS)
    with pytest.raises(ApiError) as refused:
        await cluster.create(EVENTS, body, NS)
    assert refused.value.exists


async def test_a_cordon_and_a_taint_go_in_one_patch(cluster: Cluster) -> None:
    node = read(await cluster.create(NODES, {"metadata": {"name": "n1"}}))
    taint = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
    version = node["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "spec": {"unschedulable": True, "taints": [taint]}}
    answer = read(await cluster.patch(NODES, "n1", body))
    assert (answer["spec"]["unschedulable"], answer["spec"]["taints"][0]["key"]) == (True, taint["key"])
