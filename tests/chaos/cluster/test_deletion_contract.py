"""The contract of any API server for the objects that a deleted object owns.

No garbage collector runs here, so the finalizer that waits for the garbage collector shows what was
requested.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, JOBS
from recover.kube.cluster import Cluster

NS = "default"
GONE = "gone"


def job() -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    return {"metadata": {"name": "a"}, "spec": {"suspend": True, "template": template}}


BODIES: dict[Resource, dict[str, Any]] = {JOBS: job(), CONFIGMAPS: {"metadata": {"name": "a"}}}


async def made(api: KubeApi, resource: Resource) -> None:
    await api.request("POST", resource.path(namespace=NS), body=BODIES[resource])


async def left_of(api: KubeApi, resource: Resource) -> list[str] | str:
    """Returns the finalizers of the object that is being deleted."""
    try:
        meta = msgspec.json.decode(await api.request("GET", resource.path("a", NS)))["metadata"]
    except ApiError as error:
        if not error.not_found:
            raise
        return GONE
    assert meta["deletionTimestamp"]
    finalizers: list[str] = meta["finalizers"]
    return finalizers


@pytest.mark.parametrize(
    ("resource", "body", "left"),
    [
        (JOBS, None, ["orphan"]),
        (JOBS, {}, ["orphan"]),
        (JOBS, {"gracePeriodSeconds": 0}, ["orphan"]),
        (JOBS, {"propagationPolicy": "Orphan"}, ["orphan"]),
        (JOBS, {"propagationPolicy": "Background"}, GONE),
        (JOBS, {"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        (CONFIGMAPS, None, GONE),
        (CONFIGMAPS, {"propagationPolicy": "Orphan"}, ["orphan"]),
        (CONFIGMAPS, {"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
    ],
)
async def test_a_delete_is_carried_out_as_asked_and_a_job_leaves_its_pods_behind_unless_asked(
    rest: KubeApi, resource: Resource, body: Any, left: list[str] | str
) -> None:
    await made(rest, resource)

    await rest.request("DELETE", resource.path("a", NS), body=body)

    assert await left_of(rest, resource) == left


async def test_the_query_is_read_where_there_is_no_body(rest: KubeApi) -> None:
    asked = {"propagationPolicy": "Foreground"}
    await made(rest, JOBS)
    await made(rest, CONFIGMAPS)

    await rest.request("DELETE", JOBS.path("a", NS), params=asked)
    await rest.request("DELETE", CONFIGMAPS.path("a", NS), params=asked, body={"gracePeriodSeconds": 0})

    assert await left_of(rest, JOBS) == ["foregroundDeletion"]
    assert await left_of(rest, CONFIGMAPS) == GONE


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("Foreground", None, ["foregroundDeletion"]),
        ("Orphan", None, ["orphan"]),
        ("Foreground", "Background", GONE),
        ("Foreground", "Orphan", ["orphan"]),
        ("Orphan", "Foreground", ["foregroundDeletion"]),
    ],
)
async def test_of_two_deletes_the_last_that_says_so_decides(
    rest: KubeApi, first: str, second: str | None, left: list[str] | str
) -> None:
    await made(rest, JOBS)
    await rest.request("DELETE", JOBS.path("a", NS), body={"propagationPolicy": first})

    body = {"propagationPolicy": second} if second else None
    await rest.request("DELETE", JOBS.path("a", NS), body=body)

    assert await left_of(rest, JOBS) == left


async def test_a_policy_that_does_not_exist_is_refused(rest: KubeApi) -> None:
    await made(rest, JOBS)

    with pytest.raises(ApiError) as refused:
        await rest.request("DELETE", JOBS.path("a", NS), body={"propagationPolicy": "Sometimes"})

    assert refused.value.status == 422
    assert "propagationPolicy" in refused.value.message


@pytest.mark.parametrize(("foreground", "left"), [(False, ["orphan"]), (True, ["foregroundDeletion"])])
async def test_our_own_delete_leaves_the_pods_of_a_job_behind_but_in_the_foreground(
    cluster: Cluster, foreground: bool, left: list[str]
) -> None:
    await cluster.create(JOBS, job(), NS)

    await cluster.delete(JOBS, "a", namespace=NS, foreground=foreground)

    assert msgspec.json.decode(await cluster.get(JOBS, "a", NS))["metadata"]["finalizers"] == left
