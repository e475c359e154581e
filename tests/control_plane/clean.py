"""What tests share on a running control plane: our CRDs installed, and everything of ours removed again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import MergePatch, Resource
from recover.api.crds import manifests
from recover.k8s.kinds import (
    CONFIGMAPS,
    EVENTS,
    INCIDENTS,
    JOBS,
    JOBSETS,
    LEASES,
    NODEHEALTHS,
    NODES,
    PADDLEJOBS,
    PODS,
    PYTORCHJOBS,
    RECIPES,
    RECOVERIES,
)

__all__ = ["CRDS", "install_crds", "wiped"]

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
SERVED_S = 60.0
GONE_S = 20.0
_FRAMEWORKS = (JOBSETS, PYTORCHJOBS, PADDLEJOBS)
_SERVICES = Resource("", "v1", "services", "Service")
"""The training-operator's. One that awaits garbage collection keeps its name from a job of another kind."""
_OURS = (NODEHEALTHS, INCIDENTS, RECOVERIES, RECIPES)
_SYSTEM = ("extension-apiserver-authentication", "kubernetes")


async def install_crds(api: KubeApi) -> None:
    """Our CRDs, and returns when their objects can be written, and kubectl is told of all of them: the API
    server makes that list later, by another loop."""
    for crd in manifests():
        with contextlib.suppress(ApiError):  # there from an earlier test
            await api.request("POST", CRDS.path(), body=crd)
    async with asyncio.timeout(SERVED_S):
        for resource in _OURS:
            while not await _is_served(api, resource):
                await asyncio.sleep(0.05)
        while not await _told_of(api) >= {resource.plural for resource in _OURS}:
            await asyncio.sleep(0.05)


async def _told_of(api: KubeApi) -> set[str]:
    """The kinds of our group in the API server's discovery, by their plural."""
    try:
        raw = await api.request("GET", INCIDENTS.path().rpartition("/")[0])
    except ApiError as error:
        if not error.not_found:
            raise
        return set()
    return {resource["name"] for resource in msgspec.json.decode(raw)["resources"]}


async def _is_served(api: KubeApi, resource: Resource) -> bool:
    try:
        await api.request("GET", resource.path(), params={"limit": "1"})
    except ApiError as error:
        if error.status not in (404, 429):  # 429 while the API server makes room for the new kind
            raise
        return False
    return True


async def wiped(api: KubeApi) -> None:
    """Deletes what tests make, in all namespaces, whatever finalizers say; and the lease, so that the next
    controller does not wait for one that was killed."""
    ours = (CONFIGMAPS, EVENTS, RECOVERIES, INCIDENTS, RECIPES, NODEHEALTHS)
    for resource in (*_FRAMEWORKS, JOBS, PODS, _SERVICES, *ours, NODES):
        if resource not in _FRAMEWORKS or await _is_served(api, resource):
            await _remove_all(api, resource)
    await _remove(api, LEASES, {"name": "rekindle-controller", "namespace": "rekindle-system"})
    # Of a job that was going its controller may have made one pod more, which the next test would find.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_S):
            while await _remove_all(api, JOBS) + await _remove_all(api, PODS):
                await asyncio.sleep(0.05)


async def _remove_all(api: KubeApi, resource: Resource) -> int:
    """How many there were."""
    items = msgspec.json.decode(await api.request("GET", resource.path()))["items"]
    found = [item["metadata"] for item in items if item["metadata"]["name"] not in _SYSTEM]
    for meta in found:
        await _remove(api, resource, meta)
    return len(found)


async def _remove(api: KubeApi, resource: Resource, meta: dict[str, Any]) -> None:
    path = resource.path(meta["name"], meta.get("namespace", ""))
    with contextlib.suppress(ApiError):
        if meta.get("finalizers"):
            await api.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MergePatch)
        await api.request("DELETE", path, body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
