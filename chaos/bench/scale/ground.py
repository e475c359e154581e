"""Lays out a cluster of a given size on a throwaway API server, by requests alone: no scheduler, no kubelet
and no controller of Kubernetes runs there. At the end everything is removed by name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from chaos.bench.ours import NAMESPACE, each, prepared, refuse_others, wiped
from chaos.bench.scale import objects
from chaos.bench.scale.size import Gang, Rank, Size
from detectors.agent.publish import patch_body
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.contract import Finding
from detectors.wire.resource import MergePatch, Resource
from detectors.wire.training import PodProgress
from recover.api.marks import UNHEALTHY
from recover.k8s.kinds import INCIDENTS, JOBS, LEASES, NODEHEALTHS, NODES, PODS
from recover.kube.lease import LEASE
from recover.policy.settings import Settings

__all__ = ["Ground", "laid"]

WATCH_S = 3600.0
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: dict[str, Any] = {}


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Object]


class Ground:
    """The cluster, and the changes that a bench makes in it."""

    def __init__(self, api: KubeApi, size: Size) -> None:
        self.api = api
        self.size = size
        self.gangs = size.gangs()
        self._numbers = {name: number for number, name in enumerate(size.node_names)}
        self._job_uids: dict[str, str] = {}
        self._steps: dict[str, list[PodProgress]] = {}
        """Progress of the ranks on each node, as the agents report it."""
        self._notes = 0

    async def fill(self) -> None:
        await self._post(_ACCOUNTS, {"metadata": {"name": "default"}}, NAMESPACE)
        await each(self._node(name) for name in self.size.node_names)
        await each(self._job(gang) for gang in self.gangs)
        await each(self._rank(rank) for gang in self.gangs for rank in gang.ranks)
        await each(self.publish(node) for node in self._steps)
        await each(self._other(name, node) for name, node in self.size.others())

    async def _node(self, name: str) -> None:
        number = self._numbers[name]
        await self._post(NODES, objects.node(name, number) | {"status": objects.node_status(name, now())})
        await self._patch(NODES, name, {"spec": {"taints": None}})  # admission has set a taint on a new node
        await self._post(NODEHEALTHS, {"metadata": {"name": name}, "spec": {}})
        await self.publish(name)

    async def _job(self, gang: Gang) -> None:
        raw = await self.api.request("POST", JOBS.path(namespace=NAMESPACE), body=objects.job(gang))
        self._job_uids[gang.name] = msgspec.json.decode(raw, type=_Object).metadata.uid

    async def _rank(self, rank: Rank) -> None:
        await self._post(PODS, objects.rank(rank, self._job_uids[rank.gang]), NAMESPACE)
        raw = await self._runs(rank.name)
        uid = msgspec.json.decode(raw, type=_Object).metadata.uid
        self._steps.setdefault(rank.node, []).append(objects.steps(rank, uid, now()))

    async def _other(self, name: str, node: str) -> None:
        await self._post(PODS, objects.other(name, node), NAMESPACE)
        await self._runs(name)

    async def _runs(self, pod: str) -> bytes:
        return await self._patch(PODS, pod, {"status": objects.running(now())}, NAMESPACE, "status")

    # --- changes --------------------------------------------------------------------------------------------

    async def change(self, resource: Resource, name: str) -> None:
        """Writes one more version of the object, with another annotation."""
        self._notes += 1
        namespace = NAMESPACE if resource.namespaced else ""
        await self._patch(
            resource, name, {"metadata": {"annotations": {objects.NOTE: str(self._notes)}}}, namespace
        )

    async def publish(self, node: str, *findings: Finding) -> None:
        """Writes the node's findings as its agent would: these findings and no others."""
        body = patch_body(objects.health_status(node, now(), *findings, steps=self._steps.get(node, ())))
        await self._patch(NODEHEALTHS, node, body, subresource="status")

    async def strike(self, nodes: Iterable[str]) -> None:
        """Reports for each node that a GPU fell off the bus."""
        await each(self.publish(node, objects.finding(node, now())) for node in nodes)

    async def renew(self, nodes: Collection[str]) -> None:
        """Deletes these nodes and creates them again, and deletes all Incidents, as if no fault had ever been
        found."""
        for name in nodes:
            for resource in (NODEHEALTHS, NODES):
                await self._delete(resource, name)
        await each(self._node(name) for name in nodes)
        for name in await self.incidents():
            await self._delete(INCIDENTS, name)

    # --- what is there --------------------------------------------------------------------------------------

    async def incidents(self) -> list[str]:
        raw = await self.api.request("GET", INCIDENTS.path())
        return [item.metadata.name for item in msgspec.json.decode(raw, type=_List).items]

    async def cordoned(self) -> set[str]:
        raw = await self.api.request("GET", NODES.path())
        return {one.metadata.name for one in msgspec.json.decode(raw, type=_List).items if _is_out(one)}

    async def leader(self) -> str:
        path = LEASES.path(LEASE, Settings().namespace)
        try:
            raw = await self.api.request("GET", path)
        except ApiError as error:
            if not error.not_found:
                raise
            return ""
        return str(msgspec.json.decode(raw, type=_Object).spec.get("holderIdentity") or "")

    async def watch_out(self, out: dict[str, float]) -> None:
        """Records without end when each node was first seen cordoned and tainted, by this machine's wall
        clock. The watch begins after the present nodes: to read thousands would take as long as the
        cordons."""
        raw = await self.api.request("GET", NODES.path(), params={"limit": "1"})
        since = {"resourceVersion": msgspec.json.decode(raw, type=_List).metadata.resource_version}
        async for event in self.api.watch(NODES.path(), params=since, timeout_s=WATCH_S, silence_s=WATCH_S):
            node = msgspec.json.decode(event.object, type=_Object)
            if _is_out(node):
                out.setdefault(node.metadata.name, time.time())

    # --- requests -------------------------------------------------------------------------------------------

    async def _post(self, resource: Resource, body: Any, namespace: str = "") -> None:
        try:
            whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
            await self.api.request("POST", resource.path(namespace=namespace), body=whole)
        except ApiError as error:
            if not error.exists:  # the controller creates NodeHealths, too
                raise

    async def _patch(
        self, resource: Resource, name: str, body: Any, namespace: str = "", subresource: str = ""
    ) -> bytes:
        path = resource.path(name, namespace, subresource)
        return await self.api.request("PATCH", path, body=body, content_type=MergePatch)

    async def _delete(self, resource: Resource, name: str) -> None:
        with contextlib.suppress(ApiError):
            await self.api.request("DELETE", resource.path(name), body={"gracePeriodSeconds": 0})


def now() -> datetime:
    return datetime.now(UTC)


def _is_out(node: _Object) -> bool:
    is_tainted = any(taint["key"] == UNHEALTHY for taint in node.spec.get("taints", []))
    return is_tainted and bool(node.spec.get("unschedulable"))


@asynccontextmanager
async def laid(api: KubeApi, size: Size) -> AsyncIterator[Ground]:
    """Fills the cluster. Raises StageError, before anything has changed, if the cluster contains other
    objects; raises ApiError or ReplyLost. However the block ends, only the CRDs and two namespaces stay."""
    await refuse_others(api, objects.LABEL)
    try:
        await prepared(api)
        ground = Ground(api, size)
        await ground.fill()
        yield ground
    finally:
        await asyncio.shield(wiped(api))
