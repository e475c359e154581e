"""Sends the requests of one action with their preconditions, and absorbs the answers into the caches. I/O
only, for execute.py, which decides what an error means.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_never

import msgspec
import structlog

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.contract import ObjectMeta
from detectors.wire.fitting import fit
from detectors.wire.resource import JsonPatch, PatchType
from recover.diagnose.diagnosis import fingerprint
from recover.k8s.bodies import shortened, without_nulls
from recover.k8s.kinds import EVENTS
from recover.kube.cluster import Cluster
from recover.model import Gang, Node
from recover.model.actions import Create, Delete, Emit, Ensure, Patch
from recover.runtime.answers import may_pass
from recover.runtime.cache import Cache
from recover.runtime.observe import Observer

__all__ = ["Requests"]

CONFLICTS_MAX = 3
"""Maximum number of conflicts after which a write is repeated. A training-operator writes a job's status two
or three times in a row when a rank fails or a gang ends."""

FOREIGN_TOLD_MAX = 8
"""Maximum number of foreign keys that an Event names. A key has up to `NAME_CHARS_MAX` characters."""

log = structlog.get_logger(__name__)


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    status: dict[str, Any] | None = None


class _Data(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None


class Requests:
    def __init__(self, cluster: Cluster, observer: Observer) -> None:
        self._cluster = cluster
        self._observer = observer

    async def apply(self, action: Create | Ensure | Patch | Delete, seen: Node | Gang | None) -> Emit | None:
        """Applies the action. Returns an Event about something that people must know, or None."""
        match action:
            case Create():
                await self._create(action)
            case Ensure():
                return await self._ensure(action)
            case Patch():
                await self._patch_as_seen(action, seen)
            case Delete():
                try:
                    await self._cluster.delete(
                        action.resource,
                        action.name,
                        namespace=action.namespace,
                        uid=action.uid,
                        resource_version=action.version,
                        grace_s=action.grace_s,
                        foreground=action.foreground,
                    )
                except ApiError as error:
                    if not error.not_found:
                        raise
            case _:
                assert_never(action)
        return None

    async def _create(self, action: Create) -> None:
        """Creates the object and writes its status, whatever the schema's defaults have put into the status.

        An object that existed already keeps its status, because that status may contain more, and the next
        reconcile updates it. The status of another loop that has written meanwhile is kept as well, since our
        write names the version that was created.
        """
        unwritten = True
        try:
            raw = await self._cluster.create(
                action.resource, action.body, action.namespace, strict=action.strict
            )
        except ApiError as error:
            if not error.exists:
                raise
            raw = await self._cluster.get(action.resource, action.name, action.namespace)
            unwritten = not msgspec.json.decode(raw, type=_Object).status
        if action.status is not None and unwritten:
            meta = msgspec.json.decode(raw, type=_Object).metadata
            seen = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            raw = await self._cluster.patch(
                action.resource,
                action.name,
                {"metadata": seen, "status": action.status},
                namespace=action.namespace,
                subresource="status",
            )
        self._observer.absorb(action.resource, raw)

    async def _ensure(self, action: Ensure) -> Emit | None:
        """Merges the content into the object, or creates the object. A null in the merge patch removes a
        foreign key. Returns the Event that names the removed keys, or None if none was removed."""
        try:
            foreign = await self._foreign(action)
            data = dict.fromkeys(foreign) | action.body.get("data", {})
            body = {**action.body, "data": data} if foreign else action.body
            await self._cluster.patch(action.resource, action.name, body, namespace=action.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            if action.creates:
                await self._cluster.create(action.resource, without_nulls(action.body), action.namespace)
            return None
        if not foreign or action.foreign is None:
            return None
        more = f" and {len(foreign) - FOREIGN_TOLD_MAX} more" if len(foreign) > FOREIGN_TOLD_MAX else ""
        names = f"{', '.join(foreign[:FOREIGN_TOLD_MAX])}{more}"
        return msgspec.structs.replace(action.foreign, message=f"{names}: {action.foreign.message}")

    async def _foreign(self, action: Ensure) -> list[str]:
        """Returns the keys of the existing object that the action does not name. Raises the cluster's
        errors."""
        if action.foreign is None:
            return []
        raw = await self._cluster.get(action.resource, action.name, action.namespace)
        return sorted((msgspec.json.decode(raw, type=_Data).data or {}).keys() - action.body["data"].keys())

    async def _patch_as_seen(self, action: Patch, seen: Node | Gang | None) -> None:
        """Patches the object. A newer version may differ only in content that no decision reads, such as a
        framework's own counters. That is no reason to decide again: the same patch goes to the newer version.
        The watch may bring that version before the patch is sent, or before the API server has refused the
        older one. A patch that tests what was read needs no version, so such counters cause no conflict at
        all."""
        if action.operations:
            try:
                return await self._send(action, action.operations, JsonPatch)
            except ApiError as error:
                if not error.stale:
                    raise
                await self._may_go_on(action, seen, error)
        for _ in range(CONFLICTS_MAX):
            action = self._to_newest(action, seen) or action
            try:
                return await self._patch(action)
            except ApiError as error:
                if seen is None or not error.stale:
                    raise
                if self._to_newest(action, seen) is None:
                    await self.read_again(action)
                # a decision reads what has changed, or the patch itself is refused
                if self._to_newest(action, seen) is None:
                    raise
                log.info("conflict over what no decision reads, writing again", what=action.what)
        return await self._patch(self._to_newest(action, seen) or action)

    async def _may_go_on(self, action: Patch, seen: Node | Gang | None, error: ApiError) -> None:
        """Decides whether the write continues after tests that failed. Raises a conflict if the object
        differs from what was seen in content that decisions read. If it does not differ, the API server
        writes the content in another form than expected, or refuses the change itself: the next try with the
        version shows which."""
        await self.read_again(action)
        now = self.seen(action)
        if now is None or (now.version != action.version and self._to_newest(action, seen) is None):
            why = f"{action.resource.kind} {action.name} is not as it was when the patch was decided"
            raise ApiError(409, "Conflict", why) from error

    def _to_newest(self, action: Patch, seen: Node | Gang | None) -> Patch | None:
        """Returns the patch for the newest known version. Returns None if the patch has that version already,
        or if decisions read what is new in that version."""
        now = self.seen(action)
        if seen is None or now is None or now.version == action.version:
            return None
        is_alike = msgspec.structs.replace(seen, version=now.version) == now
        return msgspec.structs.replace(action, version=now.version) if is_alike else None

    def seen(self, action: Patch) -> Node | Gang | None:
        """Returns what decisions know of the object, if others write to it too and its version is a
        precondition; otherwise None."""
        key = f"{action.namespace}/{action.name}" if action.namespace else action.name
        caches: tuple[Cache[Node] | Cache[Gang], ...] = (self._observer.nodes, *self._observer.workloads)
        rows = (cache.rows.get(key) for cache in caches if cache.resource == action.resource)
        return next(rows, None) if action.version else None

    async def _patch(self, action: Patch) -> None:
        metadata: dict[str, Any] = dict(action.body.get("metadata", {}))
        if action.uid:
            metadata["uid"] = action.uid
        if action.version:
            metadata["resourceVersion"] = action.version
        await self._send(action, {**action.body, "metadata": metadata}, action.patch_type)

    async def _send(self, action: Patch, body: Any, patch_type: PatchType) -> None:
        raw = await self._cluster.patch(
            action.resource,
            action.name,
            body,
            namespace=action.namespace,
            subresource=action.subresource,
            patch_type=patch_type,
        )
        self._observer.absorb(action.resource, raw)

    async def read_again(self, action: Create | Ensure | Patch | Delete) -> bytes | None:
        """Reads the object, so that the next reconcile sees its present state even if the watch is late.
        Returns None if the read fails."""
        try:
            return await self._read(action)
        except (ApiError, ReplyLost):
            return None

    async def read_outcome(self, action: Create | Ensure | Patch | Delete) -> bool:
        """Reads the object after a write without an answer. Returns False if the API server has not told
        whether the write happened."""
        try:
            await self._read(action)
        except ReplyLost:
            return False
        except ApiError as error:
            return not may_pass(error)
        return True

    async def _read(self, action: Create | Ensure | Patch | Delete) -> bytes:
        raw = await self._cluster.get(action.resource, action.name, action.namespace)
        self._observer.absorb(action.resource, raw)
        return raw

    async def emit(self, event: Emit, at: datetime) -> None:
        """Writes the Event. Raises the cluster's errors, except if the Event exists already."""
        about = event.regarding
        name = f"{shortened(about['name'], 200)}.{fingerprint(event.reason, event.key, about['uid'])}"
        namespace = about.get("namespace", "default")
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "note": fit(Emit, "message", event.message),
            "action": event.reason,
            "regarding": about,
            "reportingController": "rekindle.dev/controller",
            "reportingInstance": "rekindle-controller",
        }
        try:
            await self._cluster.create(EVENTS, body, namespace)
        except ApiError as error:
            if not error.exists:
                raise
