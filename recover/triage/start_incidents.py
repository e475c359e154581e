"""Writes the Incidents of starts that fail, on one node or in the fleet. Pure; diagnose/failing_starts.py
finds such starts, and reads from these Incidents which nodes are suspects.

These Incidents are about no node and no job, so they answer no finding, use no budget and begin no repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault, Origin
from detectors.wire.fitting import fitted, limit, refitted
from recover.api import Evidence, Incident, IncidentPhase, IncidentSpec, IncidentStatus, Suspect
from recover.diagnose.diagnosis import incident_name
from recover.diagnose.failing_starts import CODE, FailingStarts, is_of_starts, taken_up
from recover.model import World
from recover.model.actions import Action
from recover.triage.incidents import create, update

__all__ = ["closes_at", "start_incidents", "still_open"]

_SILENT = timedelta(hours=1)
"""Time after the last failure until the Incident closes. Pods that fail, disappear and are created again
therefore make only one Incident."""

_APART = timedelta(minutes=10)
"""Shortest time between two notes of the same failure. Controllers create refused pods again and again."""

_EVIDENCE_MAX = limit(IncidentStatus, "evidence")
_NAMED_MAX = 8
"""Number of nodes that a summary names."""


def start_incidents(world: World, found: Iterable[FailingStarts], now: datetime) -> Iterator[Action]:
    for here in found:
        before = [incident for incident in _open(world) if _reason(incident) == here.reason]
        # Jobs that fail wherever they are placed would make one node after the other a suspect.
        one = msgspec.structs.replace(here, also=tuple(filter(None, map(_suspect, before))))
        if one.node and any(not _suspect(incident) for incident in before):
            continue  # the last remaining node of a fault of the fleet
        mine = next((i for i in before if _suspect(i) == one.node), None)
        if mine is None:
            parts = ("starts", one.reason, one.first_at.isoformat())
            name = incident_name(one.node or "fleet", Fault.UNKNOWN, *parts)
            if not world.has_no_incident(name):
                continue
            spec = fitted(IncidentSpec, fault=Fault.UNKNOWN, detected_at=one.first_at)
            yield create(name, spec, _status(IncidentStatus(), one))
        else:
            name = mine.metadata.name
            if one.last_at - _last_at(mine) >= _APART:
                yield from update(mine, _status(mine.status, one), "explain-starts")
        if not one.node:
            yield from _withdrawn(before, name, now)


def _withdrawn(before: Iterable[Incident], name: str, now: datetime) -> Iterator[Action]:
    """Closes the Incidents with a single suspect, because starts now fail for the same reason on many
    nodes."""
    for incident in before:
        if _suspect(incident):
            closed = refitted(
                incident.status,
                phase=IncidentPhase.CLOSED,
                closed_at=now,
                superseded_by=name,
                unanswered=True,
            )
            yield from update(incident, closed, "withdraw-suspicion")


def still_open(world: World, found: Iterable[FailingStarts], now: datetime) -> set[str]:
    """Returns the names of the Incidents that stay open for now."""
    reasons = {one.reason for one in found}
    return {
        one.metadata.name for one in _open(world) if _reason(one) in reasons or _last_at(one) + _SILENT > now
    }


def closes_at(world: World) -> Iterator[datetime]:
    return (_last_at(one) + _SILENT for one in _open(world))


def _open(world: World) -> list[Incident]:
    return [
        incident
        for incident in world.incidents.values()
        if incident.status.phase is IncidentPhase.OPEN and is_of_starts(incident)
    ]


def _reason(incident: Incident) -> str:
    return incident.status.evidence[-1].code.removeprefix(CODE)


def _suspect(incident: Incident) -> str:
    return incident.status.suspects[0].node if incident.status.suspects else ""


def _last_at(incident: Incident) -> datetime:
    return max(evidence.at for evidence in incident.status.evidence)


def _status(before: IncidentStatus, one: FailingStarts) -> IncidentStatus:
    """Returns the status with the newest evidence. The kubelet's message is left out, because it may contain
    details of other people's jobs."""
    news = [
        fitted(
            Evidence,
            at=taken_up(pod),
            origin=Origin.KUBELET,
            code=f"{CODE}{one.reason}",
            node=pod.node,
            pod=pod.name,
            text=f"a pod of namespace {pod.namespace} was not started: {one.reason}",
        )
        for pod in one.pods
    ]
    told = {(e.node, e.pod, e.at): e for e in (*before.evidence, *news)}
    evidence = sorted(told.values(), key=lambda e: (e.at, e.node, e.pod))[-_EVIDENCE_MAX:]
    suspects = [fitted(Suspect, node=one.node, score=0.5, why=f"{CODE}{one.reason}")] if one.node else []
    return refitted(before, summary=_summary(one), evidence=evidence, suspects=suspects)


def _summary(one: FailingStarts) -> str:
    who = f"pods of {len(one.namespaces)} namespaces are not started ({one.reason})"
    if one.node:
        return (
            f"on {one.node} {who}, and on no other node. Restarts prefer other nodes for a while; "
            f"Rekindle does nothing else about {one.node}"
        )
    nodes = one.nodes
    more = f" and {len(nodes) - _NAMED_MAX} more" if len(nodes) > _NAMED_MAX else ""
    where = f"{', '.join(nodes[:_NAMED_MAX])}{more}"
    return (
        f"on {len(nodes)} nodes {who}. The nodes probably share one fault, for example of the "
        f"registry, of storage or of the pod network. No node is a suspect ({where})"
    )
