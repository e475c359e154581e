"""Keeps the newest known version of each object of one kind, decoded. A reflector fills the cache, and
observe.py reads it.

An object that cannot be read, or for which its namespace has no room left, is reported and skipped. All other
objects are processed as usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from detectors.client.kubeapi import WatchEvent
from detectors.service.rate_limit import RateLimit
from detectors.wire.resource import Resource
from recover.k8s.identities import Identified, Identity
from recover.runtime.bounds import READ_BYTES_MAX, CacheShare, too_large

__all__ = ["Cache"]

TOMBSTONES_MAX = 10_000
_NAMELESS = "(without name or version)"
"""Key, in `Cache.unreadable`, of all objects that have no readable name or version."""

log = structlog.get_logger(__name__)
T = TypeVar("T")


class _Told(msgspec.Struct):
    """The reason in the last log entry about one skipped object, and the limit of these entries."""

    why: str = ""
    rate_limit: RateLimit = msgspec.field(default_factory=RateLimit)


UNREADABLE = (
    *(msgspec.MsgspecError, ValueError, OverflowError, RecursionError),
    *(AttributeError, LookupError, TypeError),
)
"""Errors that the decoding of other people's objects may raise. The errors in the second line come from parts
that are read raw, such as a template: the API server may have accepted a wrong type there."""


class Cache(Generic[T]):
    """The newest known version of each object of one kind, decoded.

    `keep` decodes an object, and returns None for an object that no decision needs. The cache calls
    `changed(key, old, new)` for every difference, so that indexes follow. If an object that no decision needs
    becomes unreadable, it might now be one that a decision needs: the cache then calls `changed(key, None,
    None)`, and once more when the object is readable again. `rows` is the mapping to fill, by
    `namespace/name`, if others look up objects in it. The cache skips an object that is too large, or for
    which its namespace has no `room` left; `outline(raw, why)` may return what is kept instead. The log
    reports a skipped object if the reason is new, and at most once a minute by the `clock`, in seconds.
    """

    def __init__(
        self,
        resource: Resource,
        keep: Callable[[bytes], T | None],
        changed: Callable[[str, T | None, T | None], None],
        *,
        rows: dict[str, T] | None = None,
        room: CacheShare | None = None,
        outline: Callable[[bytes, str], T | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        bytes_max: int = READ_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self.resource = resource
        self.rows: dict[str, T] = {} if rows is None else rows
        self.unreadable: dict[str, str] = {}
        self._keep = keep
        self._changed = changed
        self._room = room
        self._outline = outline
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of JSON that each row takes of its namespace's room."""
        self._left_out: set[str] = set()
        """Keys of the objects for which there was no room."""
        self._versions: dict[str, int] = {}
        self._tombstones: dict[str, int] = {}
        """Versions at which objects were deleted: an older view of such an object, for example the late
        answer to a write, must not bring the object back."""
        self._unlisted: set[str] | None = None
        """Known keys that have not yet appeared in the list that is being read. None while no list is
        read."""

    def begin(self) -> None:
        self._unlisted = set(self._versions)
        self.unreadable.pop(_NAMELESS, None)  # comes back if the list has such an object

    def listed(self, item: msgspec.Raw) -> None:
        key = self.absorb(bytes(item))
        assert self._unlisted is not None, "begin() comes first"
        self._unlisted.discard(key)

    def finish(self, version: str) -> None:
        """Ends a list that was complete as of `version`. The cache forgets each object that was not in the
        list and is not newer than the list."""
        assert self._unlisted is not None, "begin() comes first"
        as_of = int(version)
        for key in self._unlisted:
            if self._versions.get(key, as_of + 1) <= as_of:
                self._forget(key, as_of)
        self._unlisted = None

    def apply(self, event: WatchEvent) -> None:
        if event.type != "DELETED":
            self.absorb(bytes(event.object))
            return
        found = self._identify(bytes(event.object))
        if found is None:
            return
        key, version = found
        # a live read may overtake the watch: the name may now belong to a newer object
        if version >= self._versions.get(key, 0):
            self._forget(key, version)

    def absorb(self, raw: bytes) -> str:
        """Takes an object unless a newer version of it, or its deletion, is known. Returns the object's key,
        or an empty string if the object has none."""
        found = self._identify(raw)
        if found is None:
            return ""
        key, version = found
        known = max(self._versions.get(key, 0), self._tombstones.get(key, 0))
        if version < known or (version == known and key not in self._left_out):
            return key
        if self._unlisted is not None and key not in self._versions:
            self._unlisted.add(key)
        self._versions[key] = version
        was_unreadable = key in self.unreadable
        new = self._decode(key, raw)
        old = self.rows.pop(key, None)
        if new is not None:
            self.rows[key] = new
        if old is not None or new is not None or was_unreadable is not (key in self.unreadable):
            self._changed(key, old, new)
        return key

    def learned(self, raw: bytes) -> bool:
        """Takes an object as `absorb` does. Returns True if the kept content differs in more than the
        version, if the object has become unreadable, or if it has no readable name or version."""
        found = self._identify(raw)
        if found is None:
            return True
        key, _ = found
        before, was_unreadable = self.rows.get(key), key in self.unreadable
        self.absorb(raw)
        is_unreadable = key in self.unreadable and not was_unreadable
        return is_unreadable or not _is_alike(before, self.rows.get(key))

    def revise(self, key: str, change: Callable[[T], T]) -> None:
        """Changes what is kept of an object, for information that is not part of the object. The version that
        the cache knows does not change."""
        old = self.rows.get(key)
        if old is not None and (new := change(old)) != old:
            self.rows[key] = new
            self._changed(key, old, new)

    def owes_list(self) -> bool:
        """Whether there is room again for an object that was left out. A new list would bring that object."""
        room = self._room
        return room is not None and any(room.has_space(_namespace(key)) for key in self._left_out)

    def _decode(self, key: str, raw: bytes) -> T | None:
        self._make_room(key)
        try:
            why, new = too_large(raw, self._bytes_max), None
            if not why and (new := self._keep(raw)) is not None:
                why = self._take_room(key, new)
            if why:
                self._skip(key, why)
                return self._outline(raw, why) if self._outline is not None else None
        except UNREADABLE as error:
            self._skip(key, str(error))
            return None
        if self.unreadable.pop(key, None) is not None:
            self._told[key].why = ""
        return new

    def _take_room(self, key: str, new: T) -> str:
        if self._room is None:
            return ""
        size = len(msgspec.json.encode(new))
        why = self._room.take(_namespace(key), size)
        if why:
            self._left_out.add(key)
        else:
            self._sizes[key] = size
        return why

    def _make_room(self, key: str) -> None:
        self._left_out.discard(key)
        size = self._sizes.pop(key, None)
        if size is not None and self._room is not None:
            self._room.give_back(_namespace(key), size)

    def _identify(self, raw: bytes) -> tuple[str, int] | None:
        try:
            meta = msgspec.json.decode(raw, type=Identified).metadata
            return _key(meta), int(meta.resource_version)
        except UNREADABLE as error:
            self._skip(_NAMELESS, str(error))
            return None

    def _skip(self, key: str, why: str) -> None:
        """Records a skipped object, and logs it seldom. A tenant may write an object each second with
        changing errors, and must not be able to fill the controller's log."""
        self.unreadable[key] = why
        told = self._told.setdefault(key, _Told())
        if why == told.why or not told.rate_limit.may_tell(self._clock()):
            return
        told.why = why
        log.warning(
            "object skipped: cannot be read",
            kind=self.resource.kind,
            object=key,
            error=why,
            not_told_before=told.rate_limit.take_held_back(),
        )

    def _forget(self, key: str, version: int) -> None:
        self._versions.pop(key, None)
        self._make_room(key)
        was_unreadable = self.unreadable.pop(key, None) is not None
        self._told.pop(key, None)
        self._tombstones[key] = version
        if len(self._tombstones) > TOMBSTONES_MAX:
            del self._tombstones[next(iter(self._tombstones))]
        old = self.rows.pop(key, None)
        if old is not None or was_unreadable:
            self._changed(key, old, None)


def _is_alike(before: object, after: object) -> bool:
    """Whether both are equal except for the version. Every view of an object that others write contains the
    version, and a new version alone changes no decision."""
    if isinstance(before, msgspec.Struct) and isinstance(after, type(before)) and hasattr(after, "version"):
        return msgspec.structs.replace(before, version=after.version) == after
    return before == after


def _namespace(key: str) -> str:
    namespace, slash, _ = key.partition("/")
    return namespace if slash else ""


def _key(meta: Identity) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
