"""What should be done about one fault, before anybody is asked whether it may be done. Pure.

Each fault is looked at alone: nothing here counts what is done about any other (decisions.py does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from recover.api import Act, ActionRecord
from recover.api.reasons import Reason
from recover.diagnose.diagnosis import Diagnosis
from recover.model import Node, Refusal, World
from recover.policy.faults import QuarantineLevel
from recover.triage import quarantine, remade, restarts
from recover.triage.guard import Allowed, Denied
from recover.triage.records import record_of, write_refused
from recover.triage.restarts import Restart

__all__ = ["TakeOut", "Wish", "wish_for"]


class TakeOut(msgspec.Struct, frozen=True):
    """A node that should leave service, or take fewer pods."""

    node: Node
    level: QuarantineLevel
    words: str
    """What is done."""
    refusal: Refusal | None
    """Set where the API server has refused that before; it is time for another try."""


class Wish(msgspec.Struct, frozen=True):
    """A record stands where nobody needs to be asked: the act is done already, the API server refuses it for
    now, or it is not due."""

    diagnosis: Diagnosis
    known: tuple[ActionRecord, ...]
    node: TakeOut | ActionRecord | None
    gangs: tuple[Restart | ActionRecord, ...]


def wish_for(world: World, diagnosis: Diagnosis, lost: Mapping[str, Node], now: datetime) -> Wish:
    """`lost` are the nodes that are out for an Incident that is not there, by the Incident's name."""
    found_lost = [remade.record(lost[diagnosis.name], now)] if diagnosis.name in lost else []
    grounds = restarts.grounds_of(diagnosis)
    return Wish(
        diagnosis=diagnosis,
        known=(*found_lost, *_blind(world, diagnosis, now)),
        node=_node(world, diagnosis, now),
        gangs=tuple(restarts.wanted(world, grounds, affected, now) for affected in diagnosis.affected),
    )


def _blind(world: World, diagnosis: Diagnosis, now: datetime) -> Iterator[ActionRecord]:
    """Nodes that may be to blame and cannot be judged stay in service; that is said of each."""
    for name, why in diagnosis.blind.items():
        node = world.nodes.get(name)
        if node is not None and node.quarantine is None:
            yield record_of(Act.QUARANTINE_NODE, name, Denied(Reason.BLIND, why), "", now)


def _node(world: World, diagnosis: Diagnosis, now: datetime) -> TakeOut | ActionRecord | None:
    """The blamed node leaves service once the blame is settled, and unless that was done already."""
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
        # A crash may have come before the incident's own write.
        return record_of(Act.QUARANTINE_NODE, node.name, Allowed(), words, ours.at)
    refusal, is_under_way = world.refused.get(f"/{node.name}"), node.name in world.taking
    if refusal is not None and (is_under_way or refusal.pause_s(now)):
        # It takes no budget between two tries: that is for nodes that can be written.
        return record_of(Act.QUARANTINE_NODE, node.name, write_refused(refusal), "", now)
    if is_under_way:
        return record_of(Act.QUARANTINE_NODE, node.name, Allowed(), words, now)
    return TakeOut(node, level, words, refusal)
