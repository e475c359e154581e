"""Decides what should be done about one fault, before any check whether it may be done. Pure.

Each fault is considered alone: nothing here counts the actions for other faults (decisions.py does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from recover.api import Act, ActionRecord
from recover.api.reasons import Reason
from recover.diagnose.diagnosis import Diagnosis
from recover.k8s.kinds import NODES
from recover.model import Node, Refusal, World
from recover.policy.faults import QuarantineLevel
from recover.triage import quarantine, remade, restarts
from recover.triage.guard import Allowed, Denied
from recover.triage.records import record_of, write_refused
from recover.triage.restarts import Restart

__all__ = ["NodeAction", "Wish", "wish_for"]


class NodeAction(msgspec.Struct, frozen=True):
    """A node that should leave service, or take fewer pods."""

    node: Node
    level: QuarantineLevel
    words: str
    """Description of the action."""
    refusal: Refusal | None
    """The last refusal of this write by the API server, if there was one. Its pause is over, so the write is
    tried again."""


class Wish(msgspec.Struct, frozen=True):
    """The actions that one fault calls for. A record takes the place of an action about which nothing has to
    be decided: the action is done, or is not due, or the API server refuses it for now."""

    diagnosis: Diagnosis
    known: tuple[ActionRecord, ...]
    node: NodeAction | ActionRecord | None
    gangs: tuple[Restart | ActionRecord, ...]


def wish_for(world: World, diagnosis: Diagnosis, without_incident: Mapping[str, Node], now: datetime) -> Wish:
    """Returns the wish for the diagnosis. `without_incident` has the nodes whose note of a quarantine names
    an Incident that no longer exists, by the name of that Incident."""
    node = without_incident.get(diagnosis.name)
    made_again = [remade.record(node, now)] if node is not None else []
    grounds = restarts.grounds_of(diagnosis)
    return Wish(
        diagnosis=diagnosis,
        known=(*made_again, *_blind(world, diagnosis, now)),
        node=_node(world, diagnosis, now),
        gangs=tuple(restarts.wanted(world, grounds, affected, now) for affected in diagnosis.affected),
    )


def _blind(world: World, diagnosis: Diagnosis, now: datetime) -> Iterator[ActionRecord]:
    """Yields a record for each node that may be the culprit and cannot be judged. Such a node stays in
    service."""
    for name, why in diagnosis.why_not_covered.items():
        node = world.nodes.get(name)
        if node is not None and node.quarantine is None:
            yield record_of(Act.QUARANTINE_NODE, name, Denied(Reason.BLIND, why), "", now)


def _node(world: World, diagnosis: Diagnosis, now: datetime) -> NodeAction | ActionRecord | None:
    """Returns how the culprit node should leave service; a cordon waits until the blame is settled. Returns
    None if nothing is to be done, and a record if the action is done, is under way, or is refused by the API
    server for now."""
    node = world.nodes.get(diagnosis.node)
    level = diagnosis.level
    if node is None or level is QuarantineLevel.NONE:
        return None
    if level is QuarantineLevel.CORDON and not diagnosis.settled:
        return None
    words, ours = quarantine.words(level, diagnosis.fault), node.quarantine
    if ours is not None and not quarantine.is_stronger(level, node):
        if ours.incident != diagnosis.name:
            return None
        # The controller may have crashed before it wrote the Incident.
        return record_of(Act.QUARANTINE_NODE, node.name, Allowed(), words, ours.at)
    refusal, is_under_way = world.refusal(NODES, node.name), node.name in world.being_quarantined
    if refusal is not None and (is_under_way or refusal.left_s(now)):
        # Between two tries the node uses no budget, so that other nodes can be quarantined.
        return record_of(Act.QUARANTINE_NODE, node.name, write_refused(refusal), "", now)
    if is_under_way:
        return record_of(Act.QUARANTINE_NODE, node.name, Allowed(), words, now)
    return NodeAction(node, level, words, refusal)
