"""Finds whether a gang has a better place than a degraded node, and remembers the answers for one reconcile:
a large gang may be on hundreds of degraded nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

from recover.diagnose.what_counts import degraded
from recover.model import Gang, World
from recover.triage.capacity import LOWEST_PRIORITY, Room, room
from recover.triage.offers import Supply
from recover.triage.quarantine import is_tainted

__all__ = ["BetterPlaces"]

_WHY = "degraded"


class BetterPlaces:
    """The room that gangs have away from all degraded nodes."""

    def __init__(self, world: World, now: datetime) -> None:
        self._world = world
        self._now = now
        self._rooms: dict[tuple[str, str, frozenset[str]], Room] = {}
        self._supplies: dict[frozenset[str], Supply] = {}

    def room(self, gang: Gang, off: str, restarted: frozenset[str]) -> Room:
        """Returns the room of the gang away from the degraded node `off`. `restarted` has the uids of the
        gangs that are being restarted, and need places, too."""
        key = (gang.ref.uid, "" if off in self._degraded else off, restarted)
        if key not in self._rooms:
            without = {off: _WHY, **self._degraded}
            # A stop is not worth the eviction of other pods, so all of them keep their places.
            self._rooms[key] = room(
                self._supply(restarted - {gang.ref.uid}),
                gang,
                self._now,
                without=without,
                priority=LOWEST_PRIORITY,
            )
        return self._rooms[key]

    def _supply(self, restarted: frozenset[str]) -> Supply:
        if restarted not in self._supplies:
            self._supplies[restarted] = Supply(self._world, restarted)
        return self._supplies[restarted]

    @cached_property
    def _degraded(self) -> Mapping[str, str]:
        """The degraded nodes, each with the reason."""
        tainted = (node.name for node in self._world.subjects.nodes.values() if is_tainted(node))
        told = degraded(self._world, self._now).items()
        return {**dict.fromkeys(tainted, _WHY), **{name: f"open fault {code}" for name, code in told}}
