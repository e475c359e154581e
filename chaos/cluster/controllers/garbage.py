"""A model of the garbage collector: what is owned goes with its owner; an owner that is deleted in the
foreground waits until what it owns has gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.cluster.controllers.base import Controller
from chaos.cluster.kinds import KINDS, Object
from chaos.cluster.store import FOREGROUND, MemoryCluster
from detectors.kubeapi import ApiError, Resource

__all__ = ["GarbageCollector"]

_Place = tuple[Resource, str, str]


class GarbageCollector(Controller):
    """Its keys are the uids of owners."""

    user = "garbage-collector"
    kinds = tuple(KINDS)

    def __init__(self, store: MemoryCluster) -> None:
        super().__init__(store)
        self._alive: dict[str, _Place] = {}
        self._owned: dict[str, dict[_Place, None]] = {}

    def touched(self, resource: Resource, old: Object | None, new: Object | None) -> Iterator[str]:
        body = new or old
        assert body is not None
        meta = body["metadata"]
        place = (resource, meta.get("namespace", ""), meta["name"])
        owners = {str(r["uid"]): None for r in meta.get("ownerReferences", [])}
        if new is None:
            self._alive.pop(meta["uid"], None)
            for owner in owners:
                self._owned.get(owner, {}).pop(place, None)
                yield owner
            yield meta["uid"]
            return
        self._alive[meta["uid"]] = place
        for owner in owners:
            self._owned.setdefault(owner, {})[place] = None
            if owner not in self._alive:
                yield owner
        if FOREGROUND in meta.get("finalizers", []):
            yield meta["uid"]

    async def reconcile(self, key: str) -> float | None:
        owner = self._alive.get(key)
        foreground = owner is not None and self._waits_in_foreground(owner)
        if owner is not None and not foreground:
            return None
        for place in tuple(self._owned.get(key, {})):
            await self._delete(place, foreground=foreground)
        if owner is not None and not self._owned.get(key):
            await self._release(owner)
        elif owner is None and not self._owned.get(key):
            self._owned.pop(key, None)
        return None

    def _waits_in_foreground(self, place: _Place) -> bool:
        resource, namespace, name = place
        meta = self.store.read(resource, name, namespace).body["metadata"]
        return "deletionTimestamp" in meta and FOREGROUND in meta.get("finalizers", [])

    async def _delete(self, place: _Place, *, foreground: bool) -> None:
        """An object with another living owner stays, unless its owner waits for it."""
        resource, namespace, name = place
        try:
            meta = self.store.read(resource, name, namespace).body["metadata"]
            others = any(str(r["uid"]) in self._alive for r in meta.get("ownerReferences", []))
            if "deletionTimestamp" in meta or (others and not foreground):
                return
            await self.api.delete(resource, name, namespace=namespace, uid=meta["uid"])
        except ApiError as error:
            if not error.not_found:
                raise

    async def _release(self, place: _Place) -> None:
        resource, namespace, name = place
        meta = self.store.read(resource, name, namespace).body["metadata"]
        left = [finalizer for finalizer in meta["finalizers"] if finalizer != FOREGROUND]
        body = {"metadata": {"finalizers": left, "resourceVersion": meta["resourceVersion"]}}
        await self.api.patch(resource, name, body, namespace=namespace)
