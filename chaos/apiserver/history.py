"""The bounded watch history of one kind: its changes in order. store.py appends; watches and lists read.

As in an API server, a reader that requests more than is kept gets 410 Expired and must list again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import msgspec

from chaos.apiserver import refusals
from chaos.apiserver.selectors import Matcher
from detectors.client.kubeapi import WatchEvent

__all__ = ["Change", "History", "Stored", "event_for"]


class Stored(msgspec.Struct, frozen=True):
    """One version of an object: as a plain document, and as the bytes that readers get."""

    body: dict[str, Any]
    raw: bytes


class Change(msgspec.Struct, frozen=True):
    """One write. `old` is None for a creation, `new` is None for a removal. `last` is the state that the
    event of a removal shows: the last state, with the version of the removal."""

    version: int
    key: tuple[str, str]
    old: Stored | None
    new: Stored | None
    last: Stored


class History:
    def __init__(self, changes_max: int) -> None:
        self._changes_max = changes_max
        self._changes: list[Change] = []
        self._wake: dict[object, Callable[[], None]] = {}
        self.dropped_until = 0
        """Version of the newest change that is no longer kept. Readers with an older version have missed a
        change."""

    def append(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > 2 * self._changes_max:
            self.forget(keep=self._changes_max)
        for wake in tuple(self._wake.values()):
            wake()

    def forget(self, *, keep: int = 0) -> None:
        """Compacts the history: drops all but the last `keep` changes."""
        dropped = self._changes[: len(self._changes) - keep]
        if dropped:
            self.dropped_until = dropped[-1].version
            self._changes = self._changes[len(dropped) :]

    def since(self, version: int) -> list[Change]:
        """Returns the changes after that version. Raises ApiError 410 if some of them are no longer kept."""
        if version < self.dropped_until:
            raise refusals.expired(version, self.dropped_until)
        return self._changes[bisect_right(self._changes, version, key=lambda change: change.version) :]

    def subscribe(self, reader: object, wake: Callable[[], None]) -> None:
        self._wake[reader] = wake

    def unsubscribe(self, reader: object) -> None:
        self._wake.pop(reader, None)


def event_for(change: Change, matches: Matcher) -> WatchEvent | None:
    """Returns the event by which a watch with that selector sees the change. An object that no longer matches
    the selector is DELETED for the watch."""
    before = change.old is not None and matches(change.old.body)
    after = change.new is not None and matches(change.new.body)
    if after:
        assert change.new is not None
        return WatchEvent("MODIFIED" if before else "ADDED", msgspec.Raw(change.new.raw))
    if before:
        return WatchEvent("DELETED", msgspec.Raw(change.last.raw))
    return None
