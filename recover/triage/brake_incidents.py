"""The Incident of a tripped brake: one for a fault of many nodes, which names the nodes that were not acted
on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted, refitted
from recover.api import Act, IncidentPhase, IncidentSpec, IncidentStatus
from recover.model import World
from recover.model.actions import Action
from recover.triage.brake import Brake, brake_name, is_brake
from recover.triage.decisions import Decision
from recover.triage.incidents import close, create, merged_records, update

__all__ = ["ALARMS", "brakes"]

_OPEN, _MEMBERS = "open-brake", "name-members"
ALARMS = frozenset({_OPEN, _MEMBERS})
"""What its writes are called: people should learn of a fault of many nodes before they learn of each node."""


def brakes(
    world: World, tripped: Iterable[Brake], held_back: Iterable[Decision], now: datetime
) -> Iterator[Action]:
    """Writes the Incident of each tripped brake, which is open while the brake is in force. Its members are
    the nodes that were not acted on because of the brake, so a fault of a thousand nodes is one Incident."""
    names = set()
    members: dict[Fault, list[Decision]] = {}
    for decision in held_back:
        members.setdefault(decision.diagnosis.fault, []).append(decision)
    for brake in tripped:
        name = _name(world, brake)
        names.add(name)
        found = members.get(brake.fault, ())
        existing = world.incidents.get(name)
        if existing is not None:
            yield from update(existing, _with_members(existing.status, found), _MEMBERS)
        elif brake.nodes:
            summary = (
                f"{brake.fault} on {brake.nodes} nodes: Rekindle takes no disruptive action until "
                f"{brake.until:%H:%M:%S} UTC"
            )
            spec = fitted(IncidentSpec, fault=brake.fault, detected_at=brake.since)
            status = fitted(IncidentStatus, summary=summary, fault=brake.fault)
            yield create(name, spec, _with_members(status, found), _OPEN)
    for name, incident in world.incidents.items():
        if incident.status.phase is IncidentPhase.OPEN and name not in names and is_brake(incident):
            yield from close(incident, now)


def _with_members(before: IncidentStatus, found: Sequence[Decision]) -> IncidentStatus:
    """Adds the members. Of the refused acts only those on gangs are listed: the act on a node is the same for
    each member."""
    members = sorted({*before.members, *(one.diagnosis.node for one in found)})
    victims = {v.uid: v for v in before.victims}
    victims |= {h.gang.ref.uid: h.gang.ref for one in found for h in one.diagnosis.affected}
    refused = [r for one in found for r in one.records if r.action == Act.RESTART_GANG]
    return refitted(
        before,
        members=members,
        victims=list(victims.values()),
        actions=merged_records(before.actions, refused),
    )


def _name(world: World, brake: Brake) -> str:
    """The open incident of this fault class' brake, or a new name."""
    for name, incident in world.incidents.items():
        if (
            is_brake(incident)
            and incident.spec.fault is brake.fault
            and incident.status.phase is IncidentPhase.OPEN
        ):
            return name
    return brake_name(brake.fault, brake.since)
