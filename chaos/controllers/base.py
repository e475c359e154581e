"""The base of the simulated controllers: changes in the store put keys in a queue, and one worker reconciles
them.

The controllers read the store directly, as if their caches were never behind. Each writes through its own
client, so that the audit log names the writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from chaos.apiserver.client import Client
from chaos.apiserver.history import Change
from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.runtime.queue import KeyedQueue

__all__ = ["Controller", "condition_of", "controller_uid", "with_condition"]

RETRY_S = 0.1


class Controller:
    """Subclasses name the keys that a change touches, and reconcile one key at a time."""

    user = ""
    kinds: tuple[Resource, ...] = ()

    def __init__(self, store: MemoryCluster) -> None:
        self.store = store
        self.api = Client(store, self.user)
        self.queue = KeyedQueue()

    def touched(self, resource: Resource, old: Object | None, new: Object | None) -> Iterable[str]:
        """Returns the keys to reconcile, and keeps the indexes. Objects that exist at the start come as
        new."""
        raise NotImplementedError

    async def reconcile(self, key: str) -> float | None:
        """Brings the cluster one step nearer to its desired state. Returns the seconds until the next
        reconcile, or None."""
        raise NotImplementedError

    async def run(self) -> None:
        for resource in self.kinds:
            for body in self.store.objects(resource):
                self._add(self.touched(resource, None, body))
            self._follow(resource)
        try:
            while True:
                await self._work()
        finally:
            for resource in self.kinds:
                self.store.history(resource).unsubscribe(self)
            self.queue.close()

    async def _work(self) -> None:
        key = await self.queue.take()
        try:
            again_in_s = await self.reconcile(key)
            if again_in_s is not None:
                self.queue.add_after(key, again_in_s)
        except (ApiError, ReplyLost):
            # Another writer was faster, or the test disturbs the requests: reconcile again.
            self.queue.add_after(key, RETRY_S)
        finally:
            self.queue.done(key)
        await asyncio.sleep(0)

    def _follow(self, resource: Resource) -> None:
        history, seen = self.store.history(resource), self.store.version

        def wake() -> None:
            nonlocal seen
            for change in history.since(seen):
                seen = change.version
                self._add(self.touched(resource, *_bodies(change)))

        history.subscribe(self, wake)

    def _add(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.queue.add(key)


def _bodies(change: Change) -> tuple[Object | None, Object | None]:
    return (change.old.body if change.old else None), (change.new.body if change.new else None)


def controller_uid(body: Object) -> str:
    """Returns the uid of the object that controls this one. Returns an empty string if there is none."""
    references = body["metadata"].get("ownerReferences", [])
    return next((str(r["uid"]) for r in references if r.get("controller")), "")


def condition_of(body: Object, kind: str) -> Object | None:
    conditions = body.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), None)


def with_condition(conditions: list[Object], new: Object) -> list[Object]:
    """Returns the conditions with the new one. Its transition time changes only with its status."""
    old = next((c for c in conditions if c["type"] == new["type"]), None)
    if old is None:
        return [*conditions, new]
    if old["status"] == new["status"]:
        new = {**new, "lastTransitionTime": old.get("lastTransitionTime")}
    return [new if c["type"] == new["type"] else c for c in conditions]
