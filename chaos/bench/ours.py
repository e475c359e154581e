"""Decides whether a cluster belongs to the bench: a bench refuses a cluster with nodes or jobs of others, and
removes by name what it created.

The CRDs and two namespaces stay: they may have existed before, and another bench needs them again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable

import msgspec

from chaos.scenarios.stage import StageError
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
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PADDLEJOBS,
    PODS,
    PYTORCHJOBS,
    RECOVERIES,
    TFJOBS,
)
from recover.kube.lease import LEASE
from recover.policy.settings import Settings
from recover.runtime.mode_keeper import STATE

__all__ = [
    "AGENT",
    "BINDINGS",
    "NAMESPACE",
    "PREFIX",
    "SERVICE_ACCOUNTS",
    "START_S",
    "each",
    "is_served",
    "prepared",
    "refuse_others",
    "wiped",
]

NAMESPACE = "rekindle-bench"
PREFIX = "bench-"
"""Prefix of the names of nodes."""
AGENT = "rekindle-bench-agent"
"""Name of the agent's ServiceAccount, and of the ClusterRoleBinding that gives it its permissions."""
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
START_S = 120.0
AT_ONCE = 16
PAGE = 500
_FRAMEWORKS = (PYTORCHJOBS, PADDLEJOBS, TFJOBS, JOBSETS, JOBS)
"""Kinds of jobs. A JobSet comes before the Jobs that it creates."""
_CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    finalizers: list[str] = []


class _Item(msgspec.Struct, rename="camel"):
    metadata: _Meta
    reporting_controller: str = ""


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Item] = []


async def each(calls: Iterable[Awaitable[None]]) -> None:
    """Awaits the calls, a few at a time. `calls` may be long: only as many as run at once are begun."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _items(api: KubeApi, resource: Resource) -> AsyncIterator[_Item]:
    """Yields all objects of a kind, and none if the kind is not installed, or not served yet."""
    if not await is_served(api, resource):
        return
    page = ""
    while True:
        params = {"limit": str(PAGE), **({"continue": page} if page else {})}
        answer = msgspec.json.decode(await api.request("GET", resource.path(), params=params), type=_List)
        for item in answer.items:
            yield item
        page = answer.metadata.continue_
        if not page:
            return


async def refuse_others(api: KubeApi, label: tuple[str, str]) -> None:
    """Raises StageError for a node without that label, and for a job that is not a bench's."""
    async for node in _items(api, NODES):
        if node.metadata.labels.get(label[0]) != label[1]:
            raise StageError(
                f"node {node.metadata.name} has no label {'='.join(label)}: this is no throwaway "
                "cluster, and faults are injected into none other"
            )
    for resource in _FRAMEWORKS:
        async for job in _items(api, resource):
            meta = job.metadata
            if meta.namespace != NAMESPACE:
                raise StageError(
                    f"{resource.kind} {meta.namespace}/{meta.name} is not this bench's: "
                    "this is no throwaway cluster, and faults are injected into none other"
                )


async def prepared(api: KubeApi) -> None:
    """Removes everything that an earlier bench left, and creates the kinds and namespaces that a bench
    needs."""
    await wiped(api)
    for resource, body in (
        *((_CRDS, crd) for crd in manifests()),
        *((NAMESPACES, {"metadata": {"name": name}}) for name in (NAMESPACE, Settings().namespace)),
    ):
        try:
            await api.request("POST", resource.path(), body=body)
        except ApiError as error:
            if not error.exists:
                raise
    async with asyncio.timeout(START_S):
        for resource in (NODEHEALTHS, INCIDENTS, RECOVERIES):
            while not await is_served(api, resource):
                await asyncio.sleep(0.05)


async def is_served(api: KubeApi, resource: Resource) -> bool:
    """Whether the API server serves the kind. The API server first does not know a kind that was just
    installed, and then replies `storage is (re)initializing` (429)."""
    try:
        await api.request("GET", resource.path(), params={"limit": "1"})
    except ApiError as error:
        if error.status not in (404, 429):
            raise
        return False
    return True


async def wiped(api: KubeApi) -> None:
    """Removes everything that a bench creates, including the remains of a killed bench."""
    for resource in (*_FRAMEWORKS, PODS, CONFIGMAPS, RECOVERIES, INCIDENTS, NODES, NODEHEALTHS, EVENTS):
        found = [item.metadata async for item in _items(api, resource) if _is_ours(resource, item)]
        await each(_removed(api, resource, meta) for meta in found)
    for resource, name, namespace in (
        (CONFIGMAPS, STATE, Settings().namespace),
        (LEASES, LEASE, Settings().namespace),
        (SERVICE_ACCOUNTS, AGENT, NAMESPACE),
        (BINDINGS, AGENT, ""),
    ):
        await _removed(api, resource, _Meta(name, namespace))


def _is_ours(resource: Resource, item: _Item) -> bool:
    """Whether the bench created the object. An Incident of a throwaway cluster is about the bench's nodes and
    jobs, because there are no others. Events about nodes are in another namespace than the bench's."""
    if resource == EVENTS and item.reporting_controller.startswith("rekindle.dev/"):
        return True
    if resource.namespaced:
        return item.metadata.namespace == NAMESPACE
    return resource == INCIDENTS or item.metadata.name.startswith(PREFIX)


async def _removed(api: KubeApi, resource: Resource, meta: _Meta) -> None:
    path = resource.path(meta.name, meta.namespace)
    options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    with contextlib.suppress(ApiError):
        if meta.finalizers:
            await api.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MergePatch)
        await api.request("DELETE", path, body=options)
