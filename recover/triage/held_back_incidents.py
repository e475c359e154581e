"""Writes the Incidents about many nodes that one cause holds back, one for each fault class and cause. Pure.

The cause is the brake, a limit on quarantines, a pause, or the end of a pause (held_back.py). A fault of a
thousand nodes is then one Incident. Every node on which Rekindle did not act is named in an open Incident: as
a member of such an Incident, or in a separate Incident. During a pause, and after it, the members of such an
Incident stay together in one Incident.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted, limit, refitted
from recover.api import Act, GangRef, Incident, IncidentPhase, IncidentSpec, IncidentStatus, Outcome
from recover.api.reasons import Reason
from recover.diagnose.diagnosis import Diagnosis
from recover.diagnose.set_aside import set_aside
from recover.model import World
from recover.model.actions import Action, Failure
from recover.policy.settings import Budgets
from recover.triage.brake import Brake
from recover.triage.decisions import Decision
from recover.triage.held_back import CAUSES, holds_back, new_name
from recover.triage.incidents import close, create, merged_records, update

__all__ = ["ALARMS", "Gathered", "gathered", "held_back"]

_OPEN_BRAKE, _OPEN_GROUP, _MEMBERS = "open-brake", "open-limit", "name-members"
ALARMS = frozenset({_OPEN_BRAKE, _OPEN_GROUP, _MEMBERS})
"""Names of the writes of these Incidents. The executor sends them before those of single nodes, so that
people learn of a fault of many nodes first."""

Key = tuple[Reason, Fault]
"""The cause that holds the nodes back, and their fault class."""

_MEMBERS_MAX = limit(IncidentStatus, "members")
_VICTIMS_MAX = limit(IncidentStatus, "victims")
_ACTIONS_MAX = limit(IncidentStatus, "actions")
_CAUSES_TOLD_MAX = 3

_BY_PAUSE = (Reason.PAUSED, Reason.STALE_EVIDENCE)
"""A pause, and its end: Rekindle does not act on faults that it saw before."""


class Gathered(msgspec.Struct, frozen=True):
    """The decisions of one reconcile, by the kind of Incident that reports them."""

    alone: list[Decision]
    """Decisions that each have a separate Incident."""
    groups: Mapping[Key, Sequence[Decision]]
    """Decisions that share one Incident for each key."""
    opened: Sequence[Incident]
    """The open Incidents about many nodes."""
    joined: Mapping[Key, Incident]
    """The Incidents of `opened` that new members join. Nodes join the Incident of a brake only while the
    brake is engaged."""

    @property
    def nodes(self) -> Iterator[str]:
        return (one.diagnosis.node for found in self.groups.values() for one in found)


# --- which nodes -------------------------------------------------------------------------------------------


def gathered(
    world: World,
    decisions: Iterable[Decision],
    proved: Mapping[str, Diagnosis],
    brakes: Collection[Brake],
    limits: Budgets,
) -> Gathered:
    """Divides the decisions into those with a separate Incident and those that share one.

    Nodes with one fault class that stay in service for one cause (`held_back.CAUSES`) share an Incident if
    they are many: the brake is engaged for the fault class, an Incident of the limit is open, or limits keep
    at least `brake_nodes_min` nodes in service, including nodes with separate Incidents. During and after a
    pause, only nodes that already share an Incident stay together. A fault that has a separate Incident keeps
    it. A fault in `proved` gets a separate Incident, because the Incident of the gang that it explains must
    point to it.
    """
    every, opened = list(decisions), _opened(world)
    members = {(one.spec.fault, node) for one in opened for node in one.status.members}
    explaining = {fault.name for fault in proved.values()}
    kept_in_service: Counter[Key] = Counter()
    may_share: dict[Key, list[Decision]] = defaultdict(list)
    for decision in every:
        why, found = _only_held_back_by(decision), decision.diagnosis
        if why is None:
            continue
        kept_in_service[why, found.fault] += 1
        is_new = found.name not in explaining and world.has_no_incident(found.name)
        if is_new and (why not in _BY_PAUSE or (found.fault, found.node) in members):
            may_share[why, found.fault].append(decision)
    joined = _incident_to_join(opened, brakes, limits)

    def are_many(key: Key) -> bool:
        why, fault = key
        if why is Reason.FLEET_BRAKE:
            return any(brake.fault is fault for brake in brakes)
        if why is Reason.BUDGET_EXHAUSTED:
            return key in joined or kept_in_service[key] >= limits.brake_nodes_min
        return why in _BY_PAUSE

    groups = {
        key: list(_fitting(found, joined.get(key), key[0]))
        for key, found in may_share.items()
        if are_many(key)
    }
    grouped = {one.diagnosis.name for found in groups.values() for one in found}
    alone = [one for one in every if one.diagnosis.name not in grouped]
    return Gathered(alone, groups, opened, joined)


def _opened(world: World) -> list[Incident]:
    """Returns the open Incidents about many nodes, in the order of their names."""
    found = (incident for _, incident in sorted(world.incidents.items()))
    return [i for i in found if i.status.phase is IncidentPhase.OPEN and holds_back(i) is not None]


def _incident_to_join(
    opened: Iterable[Incident], brakes: Iterable[Brake], limits: Budgets
) -> dict[Key, Incident]:
    """Returns the first Incident of each key, because a late watch may have led to a second one. The Incident
    of an earlier brake may still be open for its nodes: a brake is a different brake if all faults that it
    counts came after the window of that Incident."""
    window = timedelta(seconds=limits.brake_window_s)
    began = {brake.fault: brake.since for brake in brakes}
    found: dict[Key, Incident] = {}
    for incident in opened:
        why, spec = holds_back(incident), incident.spec
        assert why is not None, "others are not among the opened"
        is_joined = why is not Reason.FLEET_BRAKE or (
            spec.fault in began and began[spec.fault] <= spec.detected_at + window
        )
        if is_joined:
            found.setdefault((why, spec.fault), incident)
    return found


def _only_held_back_by(decision: Decision) -> Reason | None:
    """Returns why the node of a fault stays in service, if nothing was done about the fault."""
    records = decision.records
    if any(record.outcome is Outcome.DONE for record in records):
        return None
    reasons = {record.reason for record in records if record.action == Act.QUARANTINE_NODE}
    return next((why for why in CAUSES if why in reasons), None)


def _fitting(found: Iterable[Decision], joined: Incident | None, why: Reason) -> Iterator[Decision]:
    """Yields the decisions for which the lists of one Incident have room. A brake ends soon, so its Incident
    lists only some gangs."""
    status = joined.status if joined is not None else IncidentStatus()
    members, gangs = {*status.members}, {victim.uid for victim in status.victims}
    for one in found:
        node, of_one = one.diagnosis.node, {ref.uid for ref in _gangs(one)}
        has_room = len(members | {node}) <= _MEMBERS_MAX
        if why is not Reason.FLEET_BRAKE and of_one:
            has_room = has_room and len(gangs | of_one) <= min(_VICTIMS_MAX, _ACTIONS_MAX)
        if node in members or has_room:
            members.add(node)
            gangs |= of_one
            yield one


def _gangs(decision: Decision) -> Iterator[GangRef]:
    return (affected.gang.ref for affected in decision.diagnosis.affected)


# --- what is written ---------------------------------------------------------------------------------------


def held_back(
    world: World,
    found: Gathered,
    brakes: Iterable[Brake],
    failures: Iterable[Failure],
    now: datetime,
) -> Iterator[Action]:
    """Opens the Incidents, keeps their members, and closes those that hold no node back any more."""
    yield from _of_brakes(world, found, brakes)
    yield from _new_groups(world, found)
    yield from _kept_or_closed(world, found, failures, now)


def _of_brakes(world: World, found: Gathered, brakes: Iterable[Brake]) -> Iterator[Action]:
    """Opens or updates the Incidents of brakes. While a brake is engaged, members only join its Incident,
    because the brake ends soon."""
    for brake in brakes:
        key = (Reason.FLEET_BRAKE, brake.fault)
        group, existing = found.groups.get(key, ()), found.joined.get(key)
        if existing is not None:
            yield from update(existing, _braked(existing.status, group), _MEMBERS)
        elif brake.nodes:
            summary = (
                f"{brake.fault} on {brake.nodes} nodes: Rekindle takes no disruptive action until "
                f"{brake.until:%H:%M:%S} UTC"
            )
            spec = fitted(IncidentSpec, fault=brake.fault, detected_at=brake.since)
            status = fitted(IncidentStatus, summary=summary, fault=brake.fault)
            yield create(new_name(world, *key), spec, _braked(status, group), _OPEN_BRAKE)


def _braked(before: IncidentStatus, group: Sequence[Decision]) -> IncidentStatus:
    members = {*before.members, *(one.diagnosis.node for one in group)}
    return _with_members(before, members, group)


def _new_groups(world: World, found: Gathered) -> Iterator[Action]:
    for key, group in found.groups.items():
        if key[0] is not Reason.FLEET_BRAKE and key not in found.joined and group:
            fault, members = key[1], {one.diagnosis.node for one in group}
            spec = fitted(
                IncidentSpec, fault=fault, detected_at=min(one.diagnosis.detected_at for one in group)
            )
            status = fitted(IncidentStatus, fault=fault)
            yield create(
                new_name(world, *key), spec, _kept(world, key[0], status, members, group), _OPEN_GROUP
            )


def _kept_or_closed(
    world: World,
    found: Gathered,
    failures: Iterable[Failure],
    now: datetime,
) -> Iterator[Action]:
    """Updates or closes all Incidents about many nodes except those of engaged brakes. Each stays open while
    its cause holds one of its members back, or while one of its members may be broken and is named in no
    other open Incident."""
    braking = {i.metadata.name for (why, _), i in found.joined.items() if why is Reason.FLEET_BRAKE}
    others = [incident for incident in found.opened if incident.metadata.name not in braking]
    standing = _Standing(world, found, failures, now) if others else None
    joined = {incident.metadata.name: key for key, incident in found.joined.items()}
    for incident in others:
        key = joined.get(incident.metadata.name)
        group = found.groups.get(key, ()) if key is not None else ()
        members = {one.diagnosis.node for one in group}
        members |= {node for node in incident.status.members if standing and standing.stays(node, incident)}
        if members:
            why = holds_back(incident)
            assert why is not None, "others are not among the opened"
            yield from update(incident, _kept(world, why, incident.status, members, group), _MEMBERS)
        else:
            yield from close(incident, now)


class _Standing:
    """Decides which members stay in an Incident although its cause does not hold them back at this
    reconcile."""

    def __init__(self, world: World, found: Gathered, failures: Iterable[Failure], now: datetime) -> None:
        self._world = world
        self._unjudged = {one.about["name"] for one in failures if one.about["kind"] == "Node"}
        self._now = now
        self._decided = {one.diagnosis.node for one in found.alone} | {*found.nodes}
        opened = [i for i in world.incidents.values() if i.status.phase is IncidentPhase.OPEN]
        self._own = {name for i in opened for name in (i.spec.node, i.status.blamed_node)}
        self._elsewhere: dict[str, set[str]] = defaultdict(set)
        """For each node, the other Incidents that name the node because their cause holds it back at this
        reconcile."""
        for key, incident in found.joined.items():
            members = {*incident.status.members}
            for one in found.groups.get(key, ()):
                if one.diagnosis.node in members:
                    self._elsewhere[one.diagnosis.node].add(incident.metadata.name)

    def stays(self, node: str, incident: Incident) -> bool:
        """Whether the node stays a member: no other open Incident names it, and it may still have the
        fault."""
        if node in self._own or self._elsewhere[node] - {incident.metadata.name}:
            return False
        return node in self._decided or self._is_unread(node, incident.fault)

    def _is_unread(self, name: str, fault: Fault) -> bool:
        """Whether nobody knows if the node still has the fault. These are the cases in which `closings` keeps
        the Incident of one node open: a Node that is only absent from the cache, a node that could not be
        judged, no report, or findings that do not count while somebody works on the driver."""
        node, health = self._world.nodes.get(name), self._world.health.get(name)
        if node is None:
            return not self._world.has_no_node(name)
        if name in self._unjudged or any(set_aside(node, health, self._now)):
            return True
        return fault is not Fault.HOST and (health is None or not health.status.boot_id)


def _kept(
    world: World, why: Reason, before: IncidentStatus, members: Collection[str], group: Sequence[Decision]
) -> IncidentStatus:
    """Returns the status with the gangs of the members that are held back now, and with the cause. If nothing
    new is known about the members, the old content stays."""
    if not group:
        return _with_members(before, members, group)
    gangs = {str(ref) for one in group for ref in _gangs(one)}
    kept = refitted(
        before, victims=[], actions=[record for record in before.actions if record.target in gangs]
    )
    nodes = f"{len(members)} nodes" if len(members) > 1 else "1 node"
    stay = "stay" if len(members) > 1 else "stays"
    summary = f"{nodes} with {group[0].diagnosis.fault} {stay} in service{_because(world, why, group)}"
    return refitted(_with_members(kept, members, group), summary=summary)


def _because(world: World, why: Reason, group: Sequence[Decision]) -> str:
    """Returns the end of the summary: the figures of the limits, or the person who paused Rekindle."""
    pause = world.modes.paused
    if why is Reason.PAUSED and pause is not None:
        return f": {pause.words()}"
    words = Counter(
        record.message
        for one in group
        for record in one.records
        if (record.action, record.reason) == (Act.QUARANTINE_NODE, why)
    )
    most = [text for text, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))]
    left = len(most) - _CAUSES_TOLD_MAX
    more = f"; and {left} more" if left > 0 else ""
    limit = ", because a limit prevents the quarantine" if why is Reason.BUDGET_EXHAUSTED else ""
    return f"{limit}: {'; '.join(most[:_CAUSES_TOLD_MAX])}{more}"


def _with_members(
    before: IncidentStatus, members: Collection[str], group: Sequence[Decision]
) -> IncidentStatus:
    """Returns the status with these members. Only refused actions on gangs are listed, because the refused
    action on the node is the same for each member."""
    victims = {v.uid: v for v in before.victims} | {ref.uid: ref for one in group for ref in _gangs(one)}
    refused = [r for one in group for r in one.records if r.action == Act.RESTART_GANG]
    return refitted(
        before,
        members=sorted(members),
        victims=list(victims.values()),
        actions=merged_records(before.actions, refused),
    )
