"""Sends the requests of `rekindle cleanup`, and repeats them while the API server is away. A dry run writes
nothing. I/O only; cleanup_command.py decides the order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.contract import ObjectMeta
from detectors.wire.resource import Resource
from recover.kube.cluster import Cluster
from recover.model.actions import Patch

__all__ = ["REQUEUE_S", "Requests", "metadata_of", "warn"]

T = TypeVar("T")

REQUEUE_S = 1.0


def warn(text: str) -> None:
    print(f"rekindle cleanup: {text}", file=sys.stderr)


class Requests:
    """Sends the requests, and prints each deletion in one line; the caller prints its patches with `say`. A
    dry run prints the same lines, marked as a dry run, and sends no request that changes anything."""

    def __init__(self, cluster: Cluster, *, dry_run: bool = False) -> None:
        self._cluster = cluster
        self.dry_run = dry_run

    def say(self, text: str) -> None:
        print(f"{text} (dry run)" if self.dry_run else text)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes | None:
        """Returns None if there is no such object, or no such kind."""
        try:
            return await _answered(partial(self._cluster.get, resource, name, namespace))
        except ApiError as error:
            if not error.not_found:
                raise
            return None

    async def every(
        self, resource: Resource, parse: Callable[[bytes], T], namespace: str = "", labels: str = ""
    ) -> AsyncIterator[T]:
        """Yields all objects that can be read; none if the cluster does not know the kind."""
        page = ""
        while True:
            try:
                answer = await _answered(
                    partial(self._cluster.list, resource, namespace=namespace, labels=labels, page=page)
                )
            except ApiError as error:
                if not error.not_found:
                    raise
                return
            for item in answer.items:
                try:
                    yield parse(bytes(item))
                except msgspec.MsgspecError as error:
                    warn(f"one of {resource.plural} cannot be read and is left as it is: {error}")
            page = answer.next_page
            if not page:
                return

    async def delete(
        self, resource: Resource, name: str, namespace: str, *, with_its_pods: bool = False
    ) -> None:
        """Deletes the object. Without `with_its_pods`, the pods of a Job would stay, for example the pod of a
        reboot that is under way."""
        if self.dry_run:
            if await self.get(resource, name, namespace) is None:
                return
        else:
            try:
                await _answered(
                    partial(
                        self._cluster.delete, resource, name, namespace=namespace, foreground=with_its_pods
                    )
                )
            except ApiError as error:
                if not error.not_found:
                    raise
                return
        self.say(f"{resource.kind.lower()} {name} deleted")

    async def patch(self, patch: Patch) -> None:
        """Patches the very object that was seen, by its uid. Prints nothing, and does not repeat the
        request."""
        if not self.dry_run:
            metadata = {**patch.body.get("metadata", {}), "uid": patch.uid}
            if patch.version:
                metadata["resourceVersion"] = patch.version
            await self._cluster.patch(
                patch.resource,
                patch.name,
                {**patch.body, "metadata": metadata},
                subresource=patch.subresource,
                patch_type=patch.patch_type,
            )


class _Named(msgspec.Struct):
    metadata: ObjectMeta


def metadata_of(raw: bytes) -> ObjectMeta:
    return msgspec.json.decode(raw, type=_Named).metadata


async def _answered(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats the call while the API server is overloaded or away, until the caller's deadline."""
    told = ""
    while True:
        try:
            return await call()
        except ReplyLost as error:
            why = str(error)
        except ApiError as error:
            if error.status != 429 and error.status < 500:
                raise
            why = str(error)
        if why != told:
            warn(f"asks again: {why}")
        told = why
        await asyncio.sleep(REQUEUE_S)
