"""Which mode is in force for a node or a gang, and since when: for policy/consent.py and triage/guard.py.
Pure.

The cluster's mode may be lowered for a pool or a namespace, never raised. Promotion never acts on what was
seen before it, so each of them remembers since when it has allowed each mode; runtime/mode_keeper.py keeps
that. A pause lowers all of them to observe, and its end is a promotion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from recover.model.pause import Pause

__all__ = ["InForce", "Mode", "Modes", "Standing", "begun", "changed", "followed", "followed_pause", "lowest"]

_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Mode(StrEnum):
    """In rising order: each does all that the ones before it do."""

    # The words sort as the modes do, so `<` and min() compare them; a test holds them to it.
    OBSERVE = "observe"
    RECOVER = "recover"
    REPAIR = "repair"


class Standing(msgspec.Struct, frozen=True):
    """The mode that the cluster, a pool or a namespace allows, and since when it has allowed each one up to
    that. What is not in `since` was allowed always."""

    mode: Mode
    since: dict[Mode, datetime] = {}


_NEVER_LOWERED = Standing(max(Mode))


class InForce(msgspec.Struct, frozen=True):
    """What holds for one node or gang: the lowest mode of all that have a say, and the latest times."""

    mode: Mode
    since: Mapping[Mode, datetime]
    by: str = ""
    """Who lowers it, as `pool a100` or `namespace ml`; empty where it is the cluster's own mode."""
    paused: Pause | None = None
    """Set where a pause is all that lowers it."""
    resumed: datetime | None = None
    """When the last pause ended, if there was one."""

    def began(self, mode: Mode) -> datetime | None:
        """Since when at least this mode has been in force; None where a lower one is. What was seen before it
        never acts as that mode would."""
        return self.since.get(mode, _ALWAYS) if mode <= self.mode else None

    @property
    def acting_since(self) -> datetime:
        """Since when nodes are quarantined and gangs restarted; in mode observe, since when it is told what
        would be."""
        return self.since.get(min(self.mode, Mode.RECOVER), _ALWAYS)

    @property
    def because(self) -> str:
        """For the end of a sentence about what would be done; empty where nobody lowers the mode."""
        if self.paused is not None:
            return f" ({self.paused.words()})"
        return f" ({self.by} is in mode {self.mode})" if self.by else ""


class Modes(msgspec.Struct, frozen=True):
    """All that have a say. A pool or namespace that was never lowered is not here."""

    cluster: Standing
    pools: dict[str, Standing] = {}
    """By the value of the nodes' pool label."""
    namespaces: dict[str, Standing] = {}
    paused: Pause | None = None
    """The pause that is in force."""
    resumed: datetime | None = None
    """When the last pause ended."""


def begun(mode: Mode, now: datetime) -> Standing:
    """Nothing that was seen before now counts."""
    return Standing(mode, {each: now for each in Mode if each <= mode})


def changed(before: Standing, mode: Mode, now: datetime) -> Standing:
    """Modes that were allowed already keep their time; those that are reached anew begin now."""
    kept = {each: at for each, at in before.since.items() if each <= mode}
    return Standing(mode, kept | {each: now for each in Mode if before.mode < each <= mode})


def followed(
    before: Mapping[str, Standing], wanted: Mapping[str, Mode], now: datetime
) -> dict[str, Standing]:
    """The pools, or the namespaces, after what people now want: only those that are lowered are in `wanted`.
    One that is lowered no more stays known by the time when that ended."""
    found = {
        name: changed(before.get(name, _NEVER_LOWERED), wanted.get(name, max(Mode)), now)
        for name in sorted({*before, *wanted})
    }
    return {name: standing for name, standing in found.items() if standing != _NEVER_LOWERED}


def lowest(
    cluster: Standing,
    lowering: Iterable[tuple[str, Standing]],
    paused: Pause | None = None,
    resumed: datetime | None = None,
) -> InForce:
    """The cluster's mode, lowered by each of those, which are named as in `InForce.by`, and by a pause."""
    mode, by, since = cluster.mode, "", dict(cluster.since)
    for name, standing in lowering:
        if standing.mode < mode:
            mode, by = standing.mode, name
        for each, at in standing.since.items():
            since[each] = max(at, since.get(each, _ALWAYS))
    if resumed is not None:
        since |= {each: max(resumed, since.get(each, _ALWAYS)) for each in (Mode.RECOVER, Mode.REPAIR)}
    if paused is not None and mode is not Mode.OBSERVE:
        return InForce(Mode.OBSERVE, since, paused=paused, resumed=resumed)
    return InForce(mode, since, by, resumed=resumed)


def followed_pause(before: Modes, pause: Pause | None, now: datetime) -> Modes:
    """With the object as it is now; None where there is none. The end of a pause is noted as late as it is
    seen: an earlier time would let act what was seen meanwhile."""
    paused = pause if pause is not None and pause.lasts(now) else None
    if paused == before.paused:
        return before
    resumed = now if paused is None else before.resumed
    return msgspec.structs.replace(before, paused=paused, resumed=resumed)
