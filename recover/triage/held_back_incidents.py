"""The Incidents about many nodes that one cause holds back: one for each fault class and cause. Pure.

The cause is the brake, or a limit on quarantines. A fault of a thousand nodes is then one Incident, and every
node that was not acted on is named in an open Incident: here as a member, or in an Incident of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

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
from recover.triage.held_back import holds_back, new_name
from recover.triage.incidents import close, create, merged_records, update

__all__ = ["ALARMS", "Gathered", "gathered", "held_back"]

_OPEN_BRAKE, _OPEN_LIMIT, _MEMBERS = "open-brake", "open-limit", "name-members"
ALARMS = frozenset({_OPEN_BRAKE, _OPEN_LIMIT, _MEMBERS})
"""What its writes are called: people should learn of a fault of many nodes before they learn of each node."""

Key = tuple[Reason, Fault]
"""What holds the nodes back, and their fault class."""

_MEMBERS_MAX = limit(IncidentStatus, "members")
_VICTIMS_MAX = limit(IncidentStatus, "victims")
_ACTIONS_MAX = limit(IncidentStatus, "actions")
_LIMITS_TOLD_MAX = 3


class Gathered(msgspec.Struct, frozen=True):
    """The decisions of one look, by the kind of Incident that tells of them."""

    alone: list[Decision]
    """Each in an Incident of its own."""
    groups: Mapping[Key, Sequence[Decision]]
    """In one Incident for each key."""
    opened: Mapping[Key, Sequence[Incident]]
    """Such Incidents that are open. New members join the first; a late watch may have led to a second."""

    def first(self, key: Key) -> Incident | None:
        return next(iter(self.opened.get(key, ())), None)

    def open_for(self, why: Reason) -> Iterator[Incident]:
        return (i for key, found in self.opened.items() if key[0] is why for i in found)

    @property
    def nodes(self) -> Iterator[str]:
        return (one.diagnosis.node for found in self.groups.values() for one in found)


# --- which nodes -------------------------------------------------------------------------------------------


def gathered(
    world: World,
    decisions: Iterable[Decision],
    proved: Mapping[str, Diagnosis],
    brakes: Iterable[Brake],
    limits: Budgets,
) -> Gathered:
    """A node that only a cause of `_NAMED` keeps in service joins the others that the same cause keeps there,
    if they are many: the brake is in force for the fault class, the limit's Incident is open, or limits hold
    back at least as many nodes as the brake needs, those with Incidents of their own included. `proved` has
    faults that explain a gang's own Incident, which points to theirs."""
    named = {fault.name for fault in proved.values()}
    by_key: dict[Key, list[Decision]] = defaultdict(list)
    every = list(decisions)
    counts: Counter[Key] = Counter()
    for decision in every:
        name, fault = decision.diagnosis.name, decision.diagnosis.fault
        why = _only_held_back_by(decision)
        if why is not None:
            counts[why, fault] += 1
            if name not in named and world.has_no_incident(name):
                by_key[why, fault].append(decision)
    opened = _opened(world)
    are_many = {(Reason.FLEET_BRAKE, brake.fault) for brake in brakes}
    are_many |= {
        key
        for key in by_key
        if key[0] is Reason.BUDGET_EXHAUSTED and (key in opened or counts[key] >= limits.brake_nodes_min)
    }
    groups = {
        key: list(_fitting(found, opened.get(key, ()), key[0]))
        for key, found in by_key.items()
        if key in are_many
    }
    joined = {one.diagnosis.name for found in groups.values() for one in found}
    return Gathered([one for one in every if one.diagnosis.name not in joined], groups, opened)


def _only_held_back_by(decision: Decision) -> Reason | None:
    """Why the node of a fault stays in service, if nothing was done about the fault."""
    records = decision.records
    refused = {r.reason for r in records if r.action == Act.QUARANTINE_NODE and r.outcome is Outcome.REFUSED}
    if any(record.outcome is Outcome.DONE for record in records):
        return None
    return next((why for why in (Reason.FLEET_BRAKE, Reason.BUDGET_EXHAUSTED) if why in refused), None)


def _fitting(found: Iterable[Decision], opened: Sequence[Incident], why: Reason) -> Iterator[Decision]:
    """Those for which the lists of one Incident have room. A brake ends soon, and lists only some gangs."""
    status = opened[0].status if opened else IncidentStatus()
    members, gangs = {*status.members}, {victim.uid for victim in status.victims}
    for one in found:
        node, of_one = one.diagnosis.node, {ref.uid for ref in _gangs(one)}
        has_room = len(members | {node}) <= _MEMBERS_MAX
        if why is Reason.BUDGET_EXHAUSTED and of_one:
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
    yield from _of_brakes(world, found, brakes, now)
    yield from _of_limits(world, found, failures, now)


def _of_brakes(world: World, found: Gathered, brakes: Iterable[Brake], now: datetime) -> Iterator[Action]:
    """Each is open while the brake is in force. Members only join: the brake ends soon."""
    in_force = set()
    for brake in brakes:
        key = (Reason.FLEET_BRAKE, brake.fault)
        group, existing = found.groups.get(key, ()), found.first(key)
        if existing is not None:
            in_force.add(existing.metadata.name)
            yield from update(existing, _braked(existing.status, group), _MEMBERS)
        elif brake.nodes:
            summary = (
                f"{brake.fault} on {brake.nodes} nodes: Rekindle takes no disruptive action until "
                f"{brake.until:%H:%M:%S} UTC"
            )
            spec = fitted(IncidentSpec, fault=brake.fault, detected_at=brake.since)
            status = fitted(IncidentStatus, summary=summary, fault=brake.fault)
            yield create(new_name(world, *key), spec, _braked(status, group), _OPEN_BRAKE)
    for incident in found.open_for(Reason.FLEET_BRAKE):
        if incident.metadata.name not in in_force:
            yield from close(incident, now)


def _braked(before: IncidentStatus, group: Sequence[Decision]) -> IncidentStatus:
    members = {*before.members, *(one.diagnosis.node for one in group)}
    return _with_members(before, members, group)


def _of_limits(world: World, found: Gathered, failures: Iterable[Failure], now: datetime) -> Iterator[Action]:
    """Each is open while a limit holds one of its members back, or nobody knows of one."""
    for key, group in found.groups.items():
        if key[0] is Reason.BUDGET_EXHAUSTED and key not in found.opened and group:
            fault, members = key[1], {one.diagnosis.node for one in group}
            spec = fitted(
                IncidentSpec, fault=fault, detected_at=min(one.diagnosis.detected_at for one in group)
            )
            status = fitted(IncidentStatus, fault=fault)
            yield create(new_name(world, *key), spec, _limited(status, members, group), _OPEN_LIMIT)
    opened = list(found.open_for(Reason.BUDGET_EXHAUSTED))
    standing = _Standing(world, found, failures, now) if opened else None
    for incident in opened:
        key = (Reason.BUDGET_EXHAUSTED, incident.spec.fault)
        group = found.groups.get(key, ()) if found.first(key) is incident else ()
        members = {one.diagnosis.node for one in group}
        members |= {node for node in incident.status.members if standing and standing.stays(node, incident)}
        if members:
            yield from update(incident, _limited(incident.status, members, group), _MEMBERS)
        else:
            yield from close(incident, now)


class _Standing:
    """Which members of a limit's Incident stay although the limit does not hold them back at this look."""

    def __init__(self, world: World, found: Gathered, failures: Iterable[Failure], now: datetime) -> None:
        self._world = world
        self._unjudged = {one.about["name"] for one in failures if one.about["kind"] == "Node"}
        self._now = now
        self._decided = {one.diagnosis.node for one in found.alone} | {*found.nodes}
        opened = [i for i in world.incidents.values() if i.status.phase is IncidentPhase.OPEN]
        self._own = {name for i in opened for name in (i.spec.node, i.status.blamed_node)}
        self._elsewhere: dict[str, set[str]] = defaultdict(set)
        """Node -> other Incidents that name it, since their cause holds it back at this look."""
        for key, (incident, *_) in found.opened.items():
            members = {*incident.status.members}
            for one in found.groups.get(key, ()):
                if one.diagnosis.node in members:
                    self._elsewhere[one.diagnosis.node].add(incident.metadata.name)

    def stays(self, node: str, incident: Incident) -> bool:
        """Until another open Incident names the node, or it is known that nothing is to be told of it."""
        if node in self._own or self._elsewhere[node] - {incident.metadata.name}:
            return False
        return node in self._decided or self._is_unread(node, incident.fault)

    def _is_unread(self, name: str, fault: Fault) -> bool:
        """Whether nobody knows if the node still has the fault, as `closings` asks it for the Incident of one
        node: a Node that is only absent from the cache, a node that could not be judged, no report, or
        findings that do not count while somebody works on the driver."""
        node, health = self._world.nodes.get(name), self._world.health.get(name)
        if node is None:
            return not self._world.has_no_node(name)
        if name in self._unjudged or any(set_aside(node, health, self._now)):
            return True
        return fault is not Fault.HOST and (health is None or not health.status.boot_id)


def _limited(before: IncidentStatus, members: Collection[str], group: Sequence[Decision]) -> IncidentStatus:
    """With the gangs of those that are held back now, and the figures of the limits."""
    gangs = {str(ref) for one in group for ref in _gangs(one)}
    kept = refitted(
        before, victims=[], actions=[record for record in before.actions if record.target in gangs]
    )
    words = Counter(
        record.message
        for one in group
        for record in one.records
        if (record.action, record.reason) == (Act.QUARANTINE_NODE, Reason.BUDGET_EXHAUSTED)
    )
    summary = before.summary
    if words:
        most = [text for text, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))]
        left = len(most) - _LIMITS_TOLD_MAX
        more = f"; and {left} more limits" if left > 0 else ""
        nodes = f"{len(members)} nodes" if len(members) > 1 else "1 node"
        stay = "stay" if len(members) > 1 else "stays"
        summary = (
            f"{nodes} with {group[0].diagnosis.fault} {stay} in service, because a limit prevents the "
            f"quarantine: {'; '.join(most[:_LIMITS_TOLD_MAX])}{more}"
        )
    return refitted(_with_members(kept, members, group), summary=summary)


def _with_members(
    before: IncidentStatus, members: Collection[str], group: Sequence[Decision]
) -> IncidentStatus:
    """Of the refused acts only those on gangs are listed: the act on a node is the same for each member."""
    victims = {v.uid: v for v in before.victims} | {ref.uid: ref for one in group for ref in _gangs(one)}
    refused = [r for one in group for r in one.records if r.action == Act.RESTART_GANG]
    return refitted(
        before,
        members=sorted(members),
        victims=list(victims.values()),
        actions=merged_records(before.actions, refused),
    )


def _opened(world: World) -> dict[Key, list[Incident]]:
    """Those of one key by name."""
    found: dict[Key, list[Incident]] = defaultdict(list)
    for _, incident in sorted(world.incidents.items()):
        why = holds_back(incident) if incident.status.phase is IncidentPhase.OPEN else None
        if why is not None:
            found[why, incident.spec.fault].append(incident)
    return dict(found)
