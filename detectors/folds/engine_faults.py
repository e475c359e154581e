"""Counts in which places of a GPU the programs of several tenants had exceptions. Pure; core.py keeps one.

According to NVIDIA's workflow for Xid 13 and 31, an exception that repeats in one TPC may be caused by the
hardware; exceptions in several TPCs are caused by the program. Any program can provoke both, and may run many
times. Therefore this fold counts tenants and not exceptions: a namespace counts once, and only if all its
exceptions with that code on that GPU were in that one place. These exceptions make no GPU suspect:
- exceptions that show several places at once: a program with a large grid fails wherever it runs
- exceptions where a GPU places the first blocks of a grid
- exceptions in a place where another GPU of the node has had some, too: the programs cause them
- exceptions on a GPU, or GPU instance, that several pods have: nobody knows whose program failed, and under
  MPS the exception of one client ends all clients

The numbers below bound the memory. An agent that starts again counts from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from detectors.rules.engine_faults import EngineRow, is_first_place
from detectors.rules.facts import Draft, Seen
from detectors.wire.contract import Origin, Subject

__all__ = ["EngineFaults"]

_BURST = timedelta(minutes=1)
"""Two lines of one GPU that are closer together than this belong to one exception."""
_BURST_MAX = timedelta(minutes=10)
_PARTS_MAX = 128
_TENANTS_MAX = 32
_PLACES_MAX = 4
_NO_PLACE = ""
_SHARE_MIN = 3, 4
"""Share of the tenants with exceptions on the GPU that must have had all of them in that place: 3 of 4."""


class _Burst(msgspec.Struct):
    """Evidence in the lines of one exception so far."""

    tenant: str
    """Namespace; empty if nobody knows whose program failed."""
    subject: Subject
    began: datetime
    last: Seen
    places: dict[str, str] = {}
    """Code -> place, or `_NO_PLACE` if the exception showed several places."""


class _Tenant(msgspec.Struct):
    """Times of the exceptions of one tenant's programs on one GPU: (code, place) -> the last time."""

    seen: dict[tuple[str, str], datetime] = {}


class _Part(msgspec.Struct):
    """A GPU, or one GPU instance of a GPU."""

    burst: _Burst | None = None
    tenants: dict[str, _Tenant] = {}
    told: dict[tuple[str, str], frozenset[str]] = {}
    """Tenants that a finding on a place has already named."""


class EngineFaults:
    def __init__(self, row: EngineRow) -> None:
        self._row = row
        self._window = timedelta(seconds=row.within_s)
        self._parts: dict[tuple[str, int | None], _Part] = {}

    def line(self, draft: Draft, line: Seen, tenant_of: Callable[[Subject], str]) -> list[tuple[Draft, Seen]]:
        """Takes a line whose draft has a place, and returns the findings that earlier lines make. `tenant_of`
        returns the namespace of the only pod that has the subject; empty if not exactly one pod has it."""
        part = self._part(draft.subject)
        burst, found = part.burst, []
        if burst is not None and _is_over(burst, line.at):
            found = self._closed(part, burst)
            burst = None
        if burst is None:
            burst = part.burst = _Burst(tenant_of(draft.subject), draft.subject, line.at, line)
        burst.last = line
        if burst.places.setdefault(draft.code, draft.place) != draft.place:
            burst.places[draft.code] = _NO_PLACE
        return found

    def tick(self, now: datetime) -> list[tuple[Draft, Seen]]:
        """Returns the findings from exceptions that are over."""
        found = []
        for part in self._parts.values():
            if part.burst is not None and _is_over(part.burst, now):
                found += self._closed(part, part.burst)
        return found

    def _part(self, subject: Subject) -> _Part:
        key = subject.pci, subject.gpu_instance
        part = self._parts.pop(key, None) or _Part()
        if len(self._parts) >= _PARTS_MAX:
            del self._parts[next(iter(self._parts))]
        self._parts[key] = part
        return part

    def _closed(self, part: _Part, burst: _Burst) -> list[tuple[Draft, Seen]]:
        part.burst = None
        if not burst.tenant:
            return []
        at = burst.last.at
        tenant = part.tenants.pop(burst.tenant, None) or _Tenant()
        if len(part.tenants) >= _TENANTS_MAX:
            del part.tenants[next(iter(part.tenants))]
        part.tenants[burst.tenant] = tenant
        for code, place in burst.places.items():
            tenant.seen[code, _NO_PLACE if is_first_place(place) else place] = at
        while len(tenant.seen) > _PLACES_MAX:
            del tenant.seen[min(tenant.seen, key=tenant.seen.__getitem__)]
            tenant.seen[burst.subject.pci, _NO_PLACE] = at  # the tenant fails in many places
        self._forget(at)
        told = (self._told(part, burst, spot) for spot in burst.places.items())
        return [one for one in told if one is not None]

    def _forget(self, at: datetime) -> None:
        """Forgets exceptions that are older than the window."""
        for part in self._parts.values():
            for name, tenant in list(part.tenants.items()):
                tenant.seen = {spot: then for spot, then in tenant.seen.items() if at - then < self._window}
                if not tenant.seen:
                    del part.tenants[name]

    def _told(self, part: _Part, burst: _Burst, spot: tuple[str, str]) -> tuple[Draft, Seen] | None:
        """Returns a finding if one more tenant makes the place suspect."""
        code, place = spot
        fits = frozenset(name for name, tenant in part.tenants.items() if _is_only(tenant, spot))
        part.told[spot] = before = part.told.pop(spot, frozenset()) & fits
        if len(part.told) > _TENANTS_MAX:
            del part.told[next(iter(part.told))]
        share, whole = _SHARE_MIN
        is_enough = len(fits) >= self._row.tenants and len(fits) * whole >= len(part.tenants) * share
        if place == _NO_PLACE or not is_enough or fits <= before or self._is_elsewhere(part, spot):
            return None
        part.told[spot] = fits
        hours = self._row.within_s / 3600
        text = (
            f"{code} at {place} in programs of {len(fits)} namespaces within {hours:g} h, "
            f"each alone on the GPU: {', '.join(sorted(fits))}"
        )
        draft = Draft(
            code=self._row.code,
            fault=self._row.fault,
            origin=Origin.DRIVER,
            severity=self._row.severity,
            subject=burst.subject,
            remedy=self._row.remedy,
        )
        return draft, msgspec.structs.replace(burst.last, text=text)

    def _is_elsewhere(self, part: _Part, spot: tuple[str, str]) -> bool:
        """Whether another GPU had exceptions in the same place."""
        others = (other for other in self._parts.values() if other is not part)
        return any(spot in tenant.seen for other in others for tenant in other.tenants.values())


def _is_over(burst: _Burst, now: datetime) -> bool:
    return abs(now - burst.last.at) >= _BURST or abs(now - burst.began) >= _BURST_MAX


def _is_only(tenant: _Tenant, spot: tuple[str, str]) -> bool:
    """Whether all exceptions of the tenant with that code were in that place, and none of any code in several
    places."""
    spots = tenant.seen.keys()
    return spot in spots and all(one == spot or (one[0] != spot[0] and one[1] != _NO_PLACE) for one in spots)
