"""Decides what `rekindle undo INCIDENT` undoes, and what prevents that now. Pure; undo_command.py makes the
writes.

A quarantine is undone as if a person had uncordoned the node, with the same patch that the controller would
write in that case. Rekindle therefore no longer acts on the faults of the node that are known by now
(diagnose/answered.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import NodeHealth
from recover.api import Act, Incident, IncidentPhase, Outcome, Recovery
from recover.api.repair_state import WORKING
from recover.cli.cleanup_undo import Undo
from recover.diagnose.answered import known_of
from recover.model import Node
from recover.model.actions import Patch
from recover.policy.commands import why
from recover.policy.consent import hold_of_node
from recover.triage.quarantine import give_back
from recover.triage.spare_node import spare_of

__all__ = ["TakenBack", "taken_back"]


class TakenBack(msgspec.Struct, frozen=True):
    undos: tuple[Undo, ...]
    stays: tuple[str, ...]
    """Actions that cannot be undone, and settings of people that stay, one sentence each."""
    obstacles: tuple[str, ...]
    """Reasons why nothing is undone now, and what to do, one sentence each."""


def taken_back(
    incident: Incident,
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    incidents: Iterable[Incident],
    recoveries: Iterable[Recovery],
    now: datetime,
) -> TakenBack:
    """Returns everything that Rekindle did for this Incident and that is still in the cluster, and nothing
    else."""
    name = incident.metadata.name
    mine = [node for node in nodes.values() if node.quarantine and node.quarantine.incident == name]
    obstacles = [*_under_way(incident, recoveries)]
    for node in mine:
        obstacles += _others(incident, node, incidents)
    undos = [_released(node, health.get(node.name), now) for node in mine]
    undos += _spares(name, nodes.values(), now)
    return TakenBack(tuple(undos), tuple(_stays(incident, mine, now)), tuple(obstacles))


def _under_way(incident: Incident, recoveries: Iterable[Recovery]) -> Iterator[str]:
    name, repair = incident.metadata.name, incident.status.repair
    for recovery in recoveries:
        if recovery.active and name in {recovery.spec.incident, *recovery.cause_names}:
            ref = recovery.spec.gang
            yield (
                f"Recovery {ref.namespace}/{recovery.metadata.name} is under way ({recovery.status.phase}) "
                f"and may have stopped {ref}. Wait until it has ended: `{why(ref)}`."
            )
    if repair is not None and repair.phase in WORKING:
        yield (
            f"The repair of {incident.spec.node} is under way ({repair.phase}). Wait until it has ended: "
            f"`rekindle why node/{incident.spec.node}`."
        )


def _others(incident: Incident, node: Node, incidents: Iterable[Incident]) -> Iterator[str]:
    """Yields one sentence for each other open Incident about the node. The end of a quarantine answers all
    faults that are known of the node, so it would not undo only this Incident."""
    for other in incidents:
        is_open = other.status.phase is IncidentPhase.OPEN
        is_other = other.metadata.name != incident.metadata.name
        if is_open and is_other and node.name in (other.spec.node, other.status.blamed_node):
            yield (
                f"Incident {other.metadata.name} ({other.status.summary}) also quarantines {node.name}. "
                f"To end the quarantine for both Incidents: {_by_hand(node)}."
            )


def _by_hand(node: Node) -> str:
    is_cordoned = node.quarantine is not None and node.quarantine.cordoned
    command = f"uncordon {node.name}" if is_cordoned else f"taint node {node.name} rekindle.dev/unhealthy-"
    return f"`kubectl {command}`"


def _released(node: Node, report: NodeHealth | None, now: datetime) -> Undo:
    note = node.quarantine
    assert note is not None, "only what is ours is given back"
    patch = next(one for one in give_back(node, "", now, known_of(node, report)) if isinstance(one, Patch))
    words = f"{node.name}: taint rekindle.dev/unhealthy removed"
    if note.cordoned and node.unschedulable:
        words += ", uncordoned"
    elif node.unschedulable:
        words += "; the cordon is a person's and stays"
    return Undo(
        patch,
        f"{words}. Rekindle acts on a known fault of {node.name} only if the fault occurs again or continues",
    )


def _spares(incident: str, nodes: Iterable[Node], now: datetime) -> Iterator[Undo]:
    """Yields patches that set the taint of each spare again, as a person would: then no spare is in use for
    this Incident any more."""
    for node in nodes:
        spare = spare_of(node)
        if spare is not None and spare.lent and spare.incident == incident:
            words = f"{node.name}: taint rekindle.dev/spare added again; pods that run there stay"
            yield Undo(spare.decline(now), words)


def _stays(incident: Incident, mine: Iterable[Node], now: datetime) -> Iterator[str]:
    for record in incident.status.actions:
        if record.action == Act.RESTART_GANG and record.outcome is Outcome.DONE:
            yield f"{record.target} was restarted. Nobody can undo the restart."
    repair = incident.status.repair
    if repair is not None and repair.steps:
        kinds = ", ".join(dict.fromkeys(step.kind.value for step in repair.steps))
        yield f"{incident.spec.node} was repaired ({kinds}). Nobody can undo the repair."
    for node in mine:
        if hold_of_node(node, now):
            yield f"{node.name} has a hold of a person; the hold stays."
