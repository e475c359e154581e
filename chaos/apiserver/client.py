"""One user's view of the simulated API server, as the `Cluster` protocol. The client adds to each call the
audit log, the hook of the kill tests, and that user's own network troubles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import msgspec

from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.disturbance import Disturbance
from chaos.apiserver.history import Stored, event_for
from chaos.apiserver.selectors import Matcher, matcher
from chaos.apiserver.store import Audit, MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from detectors.wire.resource import MergePatch, PatchType, Resource
from recover.kube.cluster import ListPage

__all__ = ["BOOKMARK_S", "Client"]

BOOKMARK_S = 60.0
EARLY_S = 1e-6
"""Tolerance for timers: an event loop may fire a timer too early by the resolution of its clock. In virtual
time only timers move the clock, so a wait for the remaining fraction would never end."""


class Client:
    """Implements recover.kube.cluster.Cluster in process. `user` is the user in the audit log."""

    def __init__(self, store: MemoryCluster, user: str, *, dry_run: bool = False) -> None:
        """Creates the view of one user. With `dry_run` each request that writes is sent with dryRun=All."""
        self.user = user
        self._dry_run = dry_run
        self.disturbance = Disturbance()
        self._store = store

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        await self.disturbance.before(f"GET {resource.path(name, namespace)}")
        return self._store.read(resource, name, namespace).raw

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        limit: int = 500,
        page: str = "",
        fields: str = "",
    ) -> ListPage:
        await self.disturbance.before(f"LIST {resource.path(namespace=namespace)}")
        return self._store.page(
            resource, namespace=namespace, matches=matcher(labels, fields), limit=limit, page=page
        )

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        resource_version: str,
        timeout_s: float,
        fields: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Watches as the protocol defines it. With version "" or "0" the watch begins with all present
        objects, as in an API server."""
        await self.disturbance.before(f"WATCH {resource.path(namespace=namespace)}")
        self._store.kind(resource)
        selects = _within(namespace, matcher(labels, fields))
        position = int(resource_version or 0)
        if position == 0:
            position = self._store.version
            for body in self._store.objects(resource, namespace):
                if selects(body):
                    yield WatchEvent("ADDED", msgspec.Raw(msgspec.json.encode(body)))
        async for event in self._follow(resource, selects, position, timeout_s):
            yield event

    async def _follow(
        self, resource: Resource, selects: Matcher, position: int, timeout_s: float
    ) -> AsyncIterator[WatchEvent]:
        history, loop, era = (
            self._store.history(resource),
            asyncio.get_running_loop(),
            self.disturbance.watch_era,
        )
        ends_at, bookmark_at = loop.time() + timeout_s, loop.time() + BOOKMARK_S
        woken = asyncio.Event()
        history.subscribe(woken, woken.set)
        self.disturbance.subscribe(woken, woken.set)
        try:
            while True:
                woken.clear()
                upto = self._store.version
                if lag_s := self.disturbance.lag_s(resource):
                    await asyncio.sleep(lag_s)
                if not self.disturbance.partitioned:
                    for change in history.since(position):
                        if change.version > upto:
                            break
                        event = event_for(change, selects)
                        if event is not None:
                            yield event
                    position = max(position, upto)
                if era != self.disturbance.watch_era:
                    raise ReplyLost("the watch was dropped")
                now_s = loop.time() + EARLY_S
                if now_s >= min(ends_at, bookmark_at):
                    if self.disturbance.partitioned:
                        raise ReplyLost("the watch fell silent")
                    if now_s >= ends_at:
                        return
                    yield _bookmark(resource, position)
                    bookmark_at = loop.time() + BOOKMARK_S
                if self._store.version == upto:
                    await _wait(woken, min(ends_at, bookmark_at) - loop.time())
        finally:
            history.unsubscribe(woken)
            self.disturbance.unsubscribe(woken)

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        """Creates the object. `strict` has no effect: the store does not know the fields of other people's
        kinds, and so finds no unknown field."""
        name = (body.get("metadata") or {}).get("name", "") if isinstance(body, dict) else ""
        request = _Request("create", resource, namespace, name)
        return await self._write(request, lambda: self._store.create(resource, body, namespace))

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
        versioned, tested = _names_version(body), _tested(body)
        return await self._write(
            _Request("patch", resource, namespace, name, subresource, versioned, tested),
            lambda: self._store.patch(
                resource, name, body, namespace=namespace, subresource=subresource, patch_type=patch_type
            ),
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
        propagation = Propagation.FOREGROUND if foreground else None
        await self.remove(resource, name, Deletion(uid, resource_version, grace_s, propagation), namespace)

    async def remove(self, resource: Resource, name: str, options: Deletion, namespace: str = "") -> bytes:
        """Deletes the object with all options of a delete. Returns its last state, or its state with the
        marks of a deletion that waits."""
        versioned = bool(options.resource_version)
        request = _Request("delete", resource, namespace, name, versioned=versioned)
        return await self._write(request, lambda: self._store.delete(resource, name, options, namespace))

    async def _write(self, request: _Request, operation: Callable[[], Stored]) -> bytes:
        await self.disturbance.before(request.verb)
        self.disturbance.admit(request.verb, request.resource, request.namespace, request.name)
        version = self._store.version
        refusal: ApiError | None = None
        raw = b""
        try:
            with self._store.dry_run() if self._dry_run else nullcontext():
                stored = operation()
            raw, request = stored.raw, msgspec.structs.replace(request, name=stored.body["metadata"]["name"])
        except ApiError as error:
            refusal = error
        entry = Audit(
            at=self._store.now(),
            user=self.user,
            verb=request.verb,
            resource=request.resource,
            namespace=request.namespace,
            name=request.name,
            subresource=request.subresource,
            status=refusal.status if refusal else request.success,
            changed=self._store.version != version,
            versioned=request.versioned,
            tested=request.tested,
        )
        self._store.audit.append(entry)
        if self._store.before_reply is not None:
            await self._store.before_reply(entry)
        self.disturbance.after_write(request.verb)
        if refusal is not None:
            raise refusal
        return raw


class _Request(msgspec.Struct, frozen=True):
    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str = ""
    versioned: bool = False
    tested: tuple[str, ...] = ()

    @property
    def success(self) -> int:
        return 201 if self.verb == "create" else 200


def _names_version(body: Any) -> bool:
    """Whether a merge patch names the version for which it was made."""
    return isinstance(body, dict) and bool((body.get("metadata") or {}).get("resourceVersion"))


def _tested(body: Any) -> tuple[str, ...]:
    """Returns the fields that a JSON patch tests."""
    operations = body if isinstance(body, list | tuple) else ()
    return tuple(
        str(one.get("path")) for one in operations if isinstance(one, dict) and one.get("op") == "test"
    )


def _within(namespace: str, matches: Matcher) -> Matcher:
    if not namespace:
        return matches
    return lambda body: body["metadata"].get("namespace") == namespace and matches(body)


def _bookmark(resource: Resource, version: int) -> WatchEvent:
    metadata = {"resourceVersion": str(version)}
    body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return WatchEvent("BOOKMARK", msgspec.Raw(msgspec.json.encode(body)))


async def _wait(woken: asyncio.Event, at_most_s: float) -> None:
    """Waits until woken, or at most that long."""
    try:
        async with asyncio.timeout(max(0.0, at_most_s)):
            await woken.wait()
    except TimeoutError:
        return
