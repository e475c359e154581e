"""Computes which mode is in force for a node or a gang, and since when: for policy/consent.py and
triage/guard.py. Pure.

The cluster's mode may be lowered for a pool or a namespace, never raised. A promotion never acts on faults
that were seen before it, so the cluster and each pool and namespace remember since when each mode was
allowed; runtime/mode_keeper.py keeps these times. A pause lowers all modes to observe, and its end is a
promotion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from recover.model.pause import Pause

__all__ = [
    "InForce",
    "Mode",
    "Modes",
    "Standing",
    "begun",
    "changed",
    "followed",
    "followed_pause",
    "lowest",
    "until_now",
]

_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Mode(StrEnum):
    """The modes in rising order: each mode does all that the modes before it do."""

    # The values sort as the modes do, so `<` and min() compare modes; a test checks this.
    OBSERVE = "observe"
    RECOVER = "recover"
    REPAIR = "repair"


class Standing(msgspec.Struct, frozen=True):
    """The mode that the cluster, a pool or a namespace allows, and since when each mode up to it was allowed.
    A mode that is not in `since` was always allowed."""

    mode: Mode
    since: dict[Mode, datetime] = {}


_NEVER_LOWERED = Standing(max(Mode))


class InForce(msgspec.Struct, frozen=True):
    """The mode in force for one node or gang: the lowest of all modes that apply to it, with the latest
    times."""

    mode: Mode
    since: Mapping[Mode, datetime]
    by: str = ""
    """The part that lowers the mode, for example `pool a100` or `namespace ml`; empty if the mode is the
    cluster's own."""
    paused: Pause | None = None
    """The pause, if it lowers the mode to observe. `by` is then empty, also if a pool or namespace lowers the
    mode, too."""
    resumed: datetime | None = None
    """Time at which the last pause ended, if there was one."""

    def began(self, mode: Mode) -> datetime | None:
        """Returns since when at least this mode has been in force, or None if a lower mode is in force. A
        fault that was seen before that time never causes an action of this mode."""
        return self.since.get(mode, _ALWAYS) if mode <= self.mode else None

    @property
    def acting_since(self) -> datetime:
        """Time since which Rekindle quarantines nodes and restarts gangs. In mode observe, time since which
        it reports what it would do."""
        return self.since.get(min(self.mode, Mode.RECOVER), _ALWAYS)

    @property
    def would_act_since(self) -> datetime:
        """The same, as it is without the present pause: a pause makes no old evidence count."""
        return self.acting_since if self.paused is None else self.since.get(Mode.RECOVER, _ALWAYS)

    @property
    def because(self) -> str:
        """Text for the end of a sentence about an action that would be taken; empty if nothing lowers the
        mode."""
        if self.paused is not None:
            return f" ({self.paused.words()})"
        return f" ({self.by} is in mode {self.mode})" if self.by else ""


class Modes(msgspec.Struct, frozen=True):
    """The modes of the cluster, its pools and its namespaces. A pool or namespace whose mode was never
    lowered is missing."""

    cluster: Standing
    pools: dict[str, Standing] = {}
    """Standings of pools, by the value of the nodes' pool label."""
    namespaces: dict[str, Standing] = {}
    paused: Pause | None = None
    """The pause that is in force."""
    resumed: datetime | None = None
    """Time at which the last pause ended."""


def begun(mode: Mode, now: datetime) -> Standing:
    """Begins a mode now: no fault that was seen before now counts."""
    return Standing(mode, {each: now for each in Mode if each <= mode})


def changed(before: Standing, mode: Mode, now: datetime) -> Standing:
    """Changes the mode. Modes that were already allowed keep their time; newly allowed modes begin now."""
    kept = {each: at for each, at in before.since.items() if each <= mode}
    return Standing(mode, kept | {each: now for each in Mode if before.mode < each <= mode})


def followed(
    before: Mapping[str, Standing], wanted: Mapping[str, Mode], now: datetime
) -> dict[str, Standing]:
    """Returns the standings of the pools, or of the namespaces, after a change by people. `wanted` contains
    only those with a lower mode. A pool or namespace that is no longer lowered stays known with the time when
    that ended."""
    found = {
        name: changed(before.get(name, _NEVER_LOWERED), wanted.get(name, max(Mode)), now)
        for name in sorted({*before, *wanted})
    }
    return {name: standing for name, standing in found.items() if standing != _NEVER_LOWERED}


def until_now(modes: Modes, now: datetime) -> Modes:
    """Returns the modes without times in the future, which a controller has written whose clock was ahead.
    Until such a time, Rekindle would take each fault for one that it saw before the mode was enabled."""
    standings = (modes.cluster, *modes.pools.values(), *modes.namespaces.values())
    latest = max((at for standing in standings for at in standing.since.values()), default=_ALWAYS)
    if max(latest, modes.resumed or _ALWAYS) <= now:
        return modes

    def bounded(standing: Standing) -> Standing:
        return Standing(standing.mode, {mode: min(at, now) for mode, at in standing.since.items()})

    return msgspec.structs.replace(
        modes,
        cluster=bounded(modes.cluster),
        pools={name: bounded(one) for name, one in modes.pools.items()},
        namespaces={name: bounded(one) for name, one in modes.namespaces.items()},
        resumed=min(modes.resumed, now) if modes.resumed is not None else None,
    )


def lowest(
    cluster: Standing,
    lowering: Iterable[tuple[str, Standing]],
    paused: Pause | None = None,
    resumed: datetime | None = None,
) -> InForce:
    """Returns the cluster's mode, lowered by each standing in `lowering` (named as in `InForce.by`) and by a
    pause."""
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
    """Returns the modes with the present pause; None means that no pause exists. The end of a pause is dated
    to the moment when it is seen: an earlier time would allow actions on faults that were seen during the
    pause."""
    paused = pause if pause is not None and pause.lasts(now) else None
    if paused == before.paused:
        return before
    resumed = now if paused is None else before.resumed
    return msgspec.structs.replace(before, paused=paused, resumed=resumed)
