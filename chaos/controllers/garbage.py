"""A model of the garbage collector: it deletes objects when their owner is gone. An owner that is deleted in
the foreground waits until the objects that it owns have gone. An owner that orphans its objects waits until
none names it as owner."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.apiserver.deletion import FOREGROUND, ORPHAN
from chaos.apiserver.kinds import KINDS, Object
from chaos.apiserver.store import MemoryCluster
from chaos.controllers.base import Controller
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource

__all__ = ["GarbageCollector"]

_Place = tuple[Resource, str, str]


class GarbageCollector(Controller):
    """The keys are the uids of owners."""

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
        for owner in _owners(old):
            if owner not in _owners(new):
                self._owned.get(owner, {}).pop(place, None)
                yield owner
        if new is None:
            self._alive.pop(meta["uid"], None)
            yield meta["uid"]
            return
        self._alive[meta["uid"]] = place
        for owner in _owners(new):
            self._owned.setdefault(owner, {})[place] = None
            if owner not in self._alive:
                yield owner
        if _waits(new):
            yield meta["uid"]

    async def reconcile(self, key: str) -> float | None:
        owner = self._alive.get(key)
        waits = _waits(self._read(owner)) if owner is not None else ""
        if owner is not None and not waits:
            return None
        for place in tuple(self._owned.get(key, {})):
            if waits == ORPHAN:
                await self._disown(place, key)
            else:
                await self._delete(place, foreground=waits == FOREGROUND)
        if owner is not None and not self._owned.get(key):
            await self._release(owner, waits)
        elif owner is None and not self._owned.get(key):
            self._owned.pop(key, None)
        return None

    def _read(self, place: _Place) -> Object:
        resource, namespace, name = place
        return self.store.read(resource, name, namespace).body

    async def _disown(self, place: _Place, owner: str) -> None:
        resource, namespace, name = place
        meta = self._read(place)["metadata"]
        left = [reference for reference in meta["ownerReferences"] if reference["uid"] != owner]
        body = {"metadata": {"ownerReferences": left, "resourceVersion": meta["resourceVersion"]}}
        await self.api.patch(resource, name, body, namespace=namespace)

    async def _delete(self, place: _Place, *, foreground: bool) -> None:
        """Deletes an owned object. An object with another living owner stays, unless the deleted owner waits
        for the object."""
        resource, namespace, name = place
        try:
            meta = self._read(place)["metadata"]
            others = any(str(r["uid"]) in self._alive for r in meta.get("ownerReferences", []))
            if "deletionTimestamp" in meta or (others and not foreground):
                return
            await self.api.delete(resource, name, namespace=namespace, uid=meta["uid"])
        except ApiError as error:
            if not error.not_found:
                raise

    async def _release(self, place: _Place, waits: str) -> None:
        resource, namespace, name = place
        meta = self._read(place)["metadata"]
        left = [finalizer for finalizer in meta["finalizers"] if finalizer != waits]
        body = {"metadata": {"finalizers": left, "resourceVersion": meta["resourceVersion"]}}
        await self.api.patch(resource, name, body, namespace=namespace)


def _owners(body: Object | None) -> dict[str, None]:
    """Returns the uids of the owners, in the order of the references."""
    references = body["metadata"].get("ownerReferences", []) if body is not None else []
    return {str(reference["uid"]): None for reference in references}


def _waits(body: Object) -> str:
    """Returns the finalizer by which an object that is being deleted waits for the garbage collector. Returns
    an empty string if it does not wait."""
    meta = body["metadata"]
    held = meta.get("finalizers", []) if "deletionTimestamp" in meta else []
    return next((finalizer for finalizer in held if finalizer in (FOREGROUND, ORPHAN)), "")
