"""The reflector and its cache on every cluster: up to date, following, and up to date again after the history
has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from recover.k8s.kinds import CONFIGMAPS
from recover.kube.cluster import Cluster
from recover.kube.reflector import Reflector
from recover.runtime.cache import Cache

NS = "default"
PREFIX = f"{NS}/rekindle-"
SEEN_S = 60.0


class Text(msgspec.Struct):
    data: dict[str, str] = {}


class Followed:
    """Records what a reflector reports about the test's objects: their texts by name, and every change of
    them."""

    def __init__(self, cluster: Cluster) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []
        self._changed = asyncio.Event()
        decoder = msgspec.json.Decoder(Text)
        self._table: Cache[str] = Cache(
            CONFIGMAPS, lambda raw: decoder.decode(raw).data.get("text", ""), self._note
        )
        self._reflector = Reflector(cluster, CONFIGMAPS, self._table)

    def _note(self, key: str, old: str | None, new: str | None) -> None:
        if key.startswith(PREFIX):
            self.changes.append((key.removeprefix(PREFIX), old, new))
            self._changed.set()

    @property
    def texts(self) -> dict[str, str]:
        return {k.removeprefix(PREFIX): v for k, v in self._table.rows.items() if k.startswith(PREFIX)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        following = asyncio.create_task(self._reflector.run())
        try:
            async with asyncio.timeout(SEEN_S):
                await self._reflector.synced.wait()
            yield
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following

    async def until(self, texts: dict[str, str]) -> None:
        async with asyncio.timeout(SEEN_S):
            while self.texts != texts:
                self._changed.clear()
                await self._changed.wait()


async def put(cluster: Cluster, name: str, text: str) -> None:
    await cluster.create(CONFIGMAPS, {"metadata": {"name": f"rekindle-{name}"}, "data": {"text": text}}, NS)


async def test_a_reflector_is_in_step_with_what_is_there_and_follows_what_happens(cluster: Cluster) -> None:
    followed = Followed(cluster)
    await put(cluster, "a", "1")
    await put(cluster, "b", "1")

    async with followed.running():
        assert followed.texts == {"a": "1", "b": "1"}
        await cluster.patch(CONFIGMAPS, "rekindle-a", {"data": {"text": "2"}}, namespace=NS)
        await cluster.delete(CONFIGMAPS, "rekindle-b", namespace=NS)
        await put(cluster, "c", "1")
        await followed.until({"a": "2", "c": "1"})

    assert followed.changes[2:] == [("a", "1", "2"), ("b", "1", None), ("c", None, "1")]


async def test_what_went_while_history_ended_is_told_as_gone(
    cluster: Cluster, lose_history: Callable[[], Awaitable[None]]
) -> None:
    followed = Followed(cluster)
    for name in "abc":
        await put(cluster, name, "1")
    async with followed.running():
        pass
    followed.changes.clear()
    await cluster.delete(CONFIGMAPS, "rekindle-a", namespace=NS)
    await cluster.patch(CONFIGMAPS, "rekindle-b", {"data": {"text": "2"}}, namespace=NS)
    await put(cluster, "d", "1")
    await lose_history()

    async with followed.running():
        await followed.until({"b": "2", "c": "1", "d": "1"})

    assert sorted(followed.changes, key=str) == [("a", "1", None), ("b", "1", "2"), ("d", None, "1")]
