"""Makes many nodes with one fault that a limit, the brake or a pause keeps in service, and their
Incidents."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from detectors.wire.contract import Fault
from recover.api import Incident, IncidentPhase
from recover.api.reasons import Reason
from recover.triage.held_back import holds_back
from tests.builders import Worlds, cluster

__all__ = ["limited", "many", "named", "names", "opened", "struck"]


def limited(nodes: int = 1000, **budgets: int) -> Worlds:
    """Returns a cluster that allows one quarantine within the hour, unless the test sets other budgets."""
    world = cluster(nodes=nodes)
    changed = msgspec.structs.replace(
        world.settings.budgets, **({"quarantines_per_hour_max": 1, "brake_percent": 100.0} | budgets)
    )
    world.settings = msgspec.structs.replace(world.settings, budgets=changed)
    return world


def struck(world: Worlds, numbers: Iterable[int], fault: Fault = Fault.DEVICE_LOST) -> Worlds:
    for number in numbers:
        world.finding(on=f"n{number}", fault=fault)
    return world


def opened(world: Worlds) -> list[Incident]:
    found = world.incidents.values()
    return [i for i in found if i.status.phase is IncidentPhase.OPEN]


def many(world: Worlds, why: Reason = Reason.BUDGET_EXHAUSTED) -> list[Incident]:
    return [i for i in opened(world) if holds_back(i) is why]


def named(world: Worlds) -> set[str]:
    """Returns the nodes that an open Incident names."""
    return {name for i in opened(world) for name in (i.spec.node, *i.status.members) if name}


def names(numbers: Iterable[int]) -> list[str]:
    return sorted(f"n{number}" for number in numbers)
