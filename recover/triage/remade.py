"""Creates missing Incidents again while a node is in quarantine for them, from the annotation of the node.
Pure.

A person may have deleted the Incident, or a controller may have ended between the two writes. The node's
annotation `quarantined-by` is the memory: without an Incident nothing would say why the node is out of
service, and nothing would repair the node. If evidence is still reported, the diagnosis takes the name of
that Incident (diagnose/node_faults.py) and fills the Incident. The old Incident's record of repairs is lost,
so a repair begins again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted
from recover.api import Act, ActionRecord, Blame, IncidentSpec, IncidentStatus, Outcome
from recover.api.reasons import EventReason
from recover.diagnose.released import is_released
from recover.k8s.bodies import body, builtins, regarding
from recover.k8s.kinds import INCIDENTS
from recover.model import Node, Quarantine, World
from recover.model.actions import Action, Create, Emit
from recover.triage import quarantine

__all__ = ["nodes_without_incident", "record", "remade"]

_WRITTEN_WITHIN = timedelta(minutes=1)
"""Time after the quarantine within which the write of the Incident may still be to come, also if another
controller continues after a crash between the two writes."""


def nodes_without_incident(
    world: World, nodes: Iterable[Node], explained: Collection[str], now: datetime
) -> dict[str, Node]:
    """Returns the nodes of `nodes` that are in quarantine for an Incident that does not exist, by the
    Incident's name. A node whose quarantine a person has ended needs no Incident. If a diagnosis has
    `explained` the Incident, and the quarantine is not older than `_WRITTEN_WITHIN`, triage writes the
    Incident in the usual way."""
    found = {}
    for node in nodes:
        note = node.quarantine
        if note is None or is_released(node) or not world.has_no_incident(note.incident):
            continue
        if note.incident not in explained or now - note.at > _WRITTEN_WITHIN:
            found[note.incident] = node
    return found


def record(node: Node, now: datetime) -> ActionRecord:
    message = (
        f"this Incident was missing while {node.name} was in quarantine for it. Rekindle has "
        "created the Incident again from the node's annotation; the record of repairs is lost"
    )
    return fitted(
        ActionRecord,
        at=now,
        action=Act.REMAKE_INCIDENT,
        target=node.name,
        outcome=Outcome.DONE,
        message=message,
    )


def remade(
    lost: Mapping[str, Node], explained: Collection[str], now: datetime
) -> Iterator[tuple[Action, ...]]:
    """Creates those Incidents of `lost` that no diagnosis has `explained`, and emits an Event on each
    node."""
    for name, node in lost.items():
        note = node.quarantine
        assert note is not None, "only a node that is out can have lost its Incident"
        created = () if name in explained else (_created(node, note, now),)
        yield (*created, _told(node, note))


def _created(node: Node, note: Quarantine, now: datetime) -> Create:
    fault = Fault(note.fault) if note.fault in set(Fault) else Fault.UNKNOWN
    taken_out = fitted(
        ActionRecord, at=note.at, action=Act.QUARANTINE_NODE, target=node.name, outcome=Outcome.DONE
    )
    status = fitted(
        IncidentStatus,
        summary=f"{node.name} is in quarantine for {note.fault}; all other details are lost",
        blame=Blame.NODE,
        blamed_node=node.name,
        actions=[taken_out, record(node, now)],
    )
    spec = fitted(IncidentSpec, fault=fault, node=node.name, detected_at=note.at)
    return Create(
        what="remake-incident",
        resource=INCIDENTS,
        name=note.incident,
        body=body(INCIDENTS, note.incident, spec=spec),
        status=builtins(status),
    )


def _told(node: Node, note: Quarantine) -> Emit:
    return Emit(
        reason=EventReason.INCIDENT_REMADE,
        message=f"Incident {note.incident} was missing while {node.name} is in quarantine for it, and "
        "Rekindle has created the Incident again. The deletion of an Incident does not end the quarantine. "
        f"To end the quarantine: {quarantine.undone_by(node.name, note)}",
        regarding=regarding("v1", "Node", node.name, node.uid),
        warning=True,
        key=note.incident,
    )
