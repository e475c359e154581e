"""Wraps a Cluster: reads pass, and all writes go through one method, so that no write can be missed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from detectors.client.kubeapi import WatchEvent
from detectors.wire.resource import MergePatch, PatchType, Resource
from recover.kube.cluster import Cluster, ListPage

__all__ = ["WritesThrough"]

T = TypeVar("T")


class WritesThrough(ABC):
    """Implements Cluster. `_write` gets each write as a coroutine, and either awaits it once or closes it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @abstractmethod
    async def _write(self, write: Coroutine[Any, Any, T]) -> T: ...

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        return await self._cluster.get(resource, name, namespace)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        page: str = "",
    ) -> ListPage:
        return await self._cluster.list(
            resource, namespace=namespace, labels=labels, fields=fields, limit=limit, page=page
        )

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
        timeout_s: float,
    ) -> AsyncIterator[WatchEvent]:
        return self._cluster.watch(
            resource,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout_s=timeout_s,
        )

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        return await self._write(self._cluster.create(resource, body, namespace, strict=strict))

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
