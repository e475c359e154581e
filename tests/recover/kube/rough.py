"""Gives the lease a rough way to the API server: requests and answers are late or lost, or overtake each
other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import msgspec

from chaos.apiserver.client import Client
from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from detectors.wire.resource import Resource

__all__ = ["Rough", "Trouble"]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Trouble for the next `requests` requests. A request that arrives late does so `there_s` seconds
    after its sender got the error that no answer came."""

    requests: int
    there_s: float
    back_s: float
    fate: Literal["arrives", "is lost", "arrives late", "answer is lost"]


class Rough:
    """Implements the part of Cluster that the lease needs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._troubles: deque[Trouble] = deque()
        self._under_way: set[asyncio.Task[Any]] = set()

    def meets(self, trouble: Trouble) -> None:
        self._troubles.extend([trouble] * trouble.requests)

    def is_smooth(self) -> None:
        """Ends all trouble for later requests. Requests that are under way keep theirs."""
        self._troubles.clear()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        return await self._sent(lambda: self._client.get(resource, name, namespace))

    async def watch(
        self, resource: Resource, *, namespace: str, fields: str, resource_version: str, timeout_s: float
    ) -> AsyncIterator[WatchEvent]:
        """Meets trouble as a request does. Breaks off if there is trouble later."""
        if self._troubles:
            trouble = self._troubles.popleft()
            await asyncio.sleep(trouble.there_s)
            if trouble.fate != "arrives late":
                raise ReplyLost("no watch")
        async for event in self._client.watch(
            resource,
            namespace=namespace,
            fields=fields,
            resource_version=resource_version,
            timeout_s=timeout_s,
        ):
            if self._troubles:
                raise ReplyLost("the watch broke off")
            yield event

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        return await self._sent(lambda: self._client.create(resource, body, namespace, strict=strict))

    async def patch(self, resource: Resource, name: str, body: Any, *, namespace: str = "") -> bytes:
        return await self._sent(lambda: self._client.patch(resource, name, body, namespace=namespace))

    async def _sent(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        if not self._troubles:
            return await request()
        trouble = self._troubles.popleft()
        if trouble.fate == "arrives late":
            late = asyncio.create_task(self._later(request, trouble.there_s))
            self._under_way.add(late)
            late.add_done_callback(self._under_way.discard)
            await asyncio.sleep(trouble.back_s)
            raise ReplyLost("it will arrive when nobody waits for it any more")
        await asyncio.sleep(trouble.there_s)
        if trouble.fate == "is lost":
            raise ReplyLost("it never arrived")
        answer = await request()
        await asyncio.sleep(trouble.back_s)
        if trouble.fate == "answer is lost":
            raise ReplyLost("it arrived, and its answer did not")
        return answer

    async def _later(self, request: Callable[[], Awaitable[bytes]], after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await request()
        except ApiError:
            return
