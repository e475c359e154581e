"""Helpers that tests share on a running control plane: they install Rekindle's CRDs, and remove everything of
Rekindle again."""

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
    TFJOBS,
)

__all__ = ["CRDS", "install_crds", "removed", "wiped"]

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
SERVED_S = 60.0
GONE_S = 20.0
REMOVED_S = 60.0
_FRAMEWORKS = (JOBSETS, PYTORCHJOBS, PADDLEJOBS, TFJOBS)
_SERVICES = Resource("", "v1", "services", "Service")
"""The training-operator's Services. A Service that awaits garbage collection blocks its name for a job of
another kind."""
_OURS = (NODEHEALTHS, INCIDENTS, RECOVERIES, RECIPES)
_SYSTEM = ("extension-apiserver-authentication", "kubernetes")


async def install_crds(api: KubeApi) -> None:
    """Installs Rekindle's CRDs. Returns when their objects can be written and the discovery of the API
    server, which kubectl reads, lists all of them: the API server updates that list later, in another
    loop."""
    for crd in manifests():
        with contextlib.suppress(ApiError):  # exists from an earlier test
            await api.request("POST", CRDS.path(), body=crd)
    async with asyncio.timeout(SERVED_S):
        for resource in _OURS:
            while not await _is_served(api, resource):
                await asyncio.sleep(0.05)
        while not await _told_of(api) >= {resource.plural for resource in _OURS}:
            await asyncio.sleep(0.05)


async def _told_of(api: KubeApi) -> set[str]:
    """Returns the kinds of Rekindle's group in the API server's discovery, by their plural."""
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
    """Deletes what tests create, in all namespaces, even objects with finalizers. Also deletes the lease, so
    that the next controller does not wait for a killed one."""
    ours = (CONFIGMAPS, EVENTS, RECOVERIES, INCIDENTS, RECIPES, NODEHEALTHS)
    for resource in (*_FRAMEWORKS, JOBS, PODS, _SERVICES, *ours, NODES):
        if resource not in _FRAMEWORKS or await _is_served(api, resource):
            await _remove_all(api, resource)
    await _remove(api, LEASES, {"name": "rekindle-controller", "namespace": "rekindle-system"})
    # The controller of a job that is being deleted may have created one more pod, which the next test would
    # find.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_S):
            while await _remove_all(api, JOBS) + await _remove_all(api, PODS):
                await asyncio.sleep(0.05)


async def removed(api: KubeApi, resource: Resource, name: str, namespace: str = "") -> None:
    """Deletes the object, even one with finalizers, and returns when it is gone: Kubernetes keeps a claim
    that a pod uses, and the volume of such a claim, and the next test may create one of the same name."""
    path = resource.path(name, namespace)
    async with asyncio.timeout(REMOVED_S):
        while True:
            try:
                await api.request("DELETE", path)
                body = {"metadata": {"finalizers": None}}
                await api.request("PATCH", path, body=body, content_type=MergePatch)
            except ApiError as error:
                if error.not_found:
                    return
                raise
            await asyncio.sleep(0.05)


async def _remove_all(api: KubeApi, resource: Resource) -> int:
    """Removes all objects of the kind, and returns their number."""
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
