"""The only way of the controller's writes to the API: none is sent unless the lease outlasts it.

Reads pass. Loops, executor and mode keeper know nothing of the lease; whatever they write comes through here.
What the API server still does after we have hung up on it is guarded by each write's own precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from detectors.kubeapi import ReplyLost, WatchEvent
from detectors.resource import MergePatch, PatchType, Resource
from recover.errors import NotLeaderError
from recover.kube.cluster import Cluster, ListPage
from recover.kube.lease import Elector

__all__ = ["Fenced"]

T = TypeVar("T")


class Fenced:
    """Implements Cluster. A write raises NotLeaderError where it was not sent, and ReplyLost where no answer
    came within the lease's `write_timeout_s`."""

    def __init__(self, cluster: Cluster, elector: Elector) -> None:
        self._cluster = cluster
        self._elector = elector
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self) -> None:
        """No write is sent any more; returns when those under way are answered or given up."""
        self._closed = True
        await self._idle.wait()

    async def _write(self, write: Coroutine[Any, Any, T]) -> T:
        try:
            if self._closed:
                raise NotLeaderError("this controller is ending")
            self._elector.check()
            self._in_flight += 1
            self._idle.clear()
            try:
                async with asyncio.timeout(self._elector.write_timeout_s):
                    return await write
            except TimeoutError as error:
                raise ReplyLost(f"no answer within {self._elector.write_timeout_s:g} s") from error
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._idle.set()
        finally:
            write.close()

    # --- reads --------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        return await self._cluster.get(resource, name, namespace)

    async def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", limit: int = 500, page: str = ""
    ) -> ListPage:
        return await self._cluster.list(resource, namespace=namespace, labels=labels, limit=limit, page=page)

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        resource_version: str,
        timeout_s: float,
        initial: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        return self._cluster.watch(
            resource,
            namespace=namespace,
            labels=labels,
            resource_version=resource_version,
            timeout_s=timeout_s,
            initial=initial,
        )

    # --- writes -------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, body: Any, namespace: str = "") -> bytes:
        return await self._write(self._cluster.create(resource, body, namespace))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = MergePatch,
    ) -> bytes:
        return await self._write(
            self._cluster.patch(
                resource, name, body, namespace=namespace, subresource=subresource, patch_type=patch_type
            )
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        foreground: bool = False,
    ) -> None:
        await self._write(
            self._cluster.delete(
                resource,
                name,
                namespace=namespace,
                uid=uid,
                resource_version=resource_version,
                grace_s=grace_s,
                foreground=foreground,
            )
        )
