"""The controller's way to the API, with a place before and after each write where the controller may die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from chaos.cluster.client import Client
from chaos.cluster.store import Deletion
from detectors.kubeapi import MergePatch, PatchType, Resource, WatchEvent
from recover.kube.cluster import ListPage

__all__ = ["CrashPoints"]


class CrashPoints:
    """Implements recover.kube.cluster.Cluster. `kill` ends the controller, and with it the caller.

    `crash_in` counts down places: 1 dies at the next one. A write has two, before it is sent and after it was
    applied but not answered. None never dies. `down_s` is how long it takes until the next one starts; None
    leaves that to the story.
    """

    def __init__(self, client: Client, kill: Callable[[], None]) -> None:
        self.crash_in: int | None = None
        self.down_s: float | None = None
        self._client = client
        self._kill = kill

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        return await self._client.get(resource, name, namespace)

    async def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", limit: int = 500, page: str = ""
    ) -> ListPage:
        return await self._client.list(resource, namespace=namespace, labels=labels, limit=limit, page=page)

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
        return self._client.watch(
            resource,
            namespace=namespace,
            labels=labels,
            resource_version=resource_version,
            timeout_s=timeout_s,
            initial=initial,
        )

    async def create(self, resource: Resource, body: Any, namespace: str = "") -> bytes:
        return await self._between_places(self._client.create(resource, body, namespace))

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
        return await self._between_places(
            self._client.patch(
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
        options = Deletion(uid, resource_version, grace_s, foreground)
        await self._between_places(self._client.remove(resource, name, options, namespace))

    async def _between_places(self, write: Coroutine[Any, Any, bytes]) -> bytes:
        try:
            await self._place()
            raw = await write
        finally:
            write.close()
        await self._place()
        return raw

    async def _place(self) -> None:
        if self.crash_in is None:
            return
        self.crash_in -= 1
        if self.crash_in == 0:
            self.crash_in = None
            self._kill()
            await asyncio.Event().wait()  # the process is gone: whoever waits here is cancelled
