"""Corrects blame that was settled too early: a gang's own Incident may prove later to be a node's fault.
Pure.

Agents may be slow, clocks differ, and Kubernetes notices a missing node only after a while: the evidence may
come when the gang is stopped already, or trains again. A fault that was shown close to the gang's failure, on
a node where its ranks ran, and before all of them ran again, is the cause of the failure, however late the
fault is reported.

A fault that only degrades its node, for example a contained memory error, ends only programs that run when
the fault is shown. Such a fault explains no failure of a later start, unless the fault is shown again after
that start. A fault of the level `cordon` ends every program that starts on its node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault
from recover.api import Blame, GangRef, Incident, IncidentPhase, Phase, Recovery
from recover.diagnose.diagnosis import Diagnosis
from recover.diagnose.ranks import started_at
from recover.model import World
from recover.policy.faults import QuarantineLevel
from recover.policy.settings import Timing

__all__ = ["corrections", "doubted", "proved_before", "shown_around"]


def corrections(world: World, found: Collection[Diagnosis], timing: Timing) -> dict[str, Diagnosis]:
    """Maps the name of a gang's own Incident to the diagnosis of the node's fault that really caused the
    failure of the gang; the first of `found` if there are several."""
    faults = [d for d in found if d.node and d.settled and d.blame is Blame.NODE]
    judged = {diagnosis.name for diagnosis in found}
    unexplained = {diagnosis.gang.ref.uid for diagnosis in found if diagnosis.gang is not None}
    proved = {}
    for incident, gang in _in_question(world, faults, timing):
        name = incident.metadata.name
        recovery = _took_up(world, incident, gang)
        if recovery is None:
            fault = next((d for d in faults if _kills(d, gang) and gang.uid not in unexplained), None)
        else:
            fault = next((d for d in faults if _is_behind(world, d, incident, gang, recovery, timing)), None)
        if fault is not None and name not in judged:
            proved[name] = fault
    return proved


def doubted(world: World, found: Collection[Diagnosis], timing: Timing) -> list[Diagnosis]:
    """Returns all diagnoses, some with a remark. If the verdict on a node is not final, and the real cause
    may be a fault of another node on which the verdict is final, the diagnosis of the first node says so. Its
    blame and cordon stay, because the agent of that node has found a fault, too."""
    final = [d for d in found if d.node and d.blame is Blame.NODE and d.settles_at is None]
    behind = ((d, _behind_node(world, d, final, timing)) for d in found)
    return [diagnosis if fault is None else _doubted(world, diagnosis, fault) for diagnosis, fault in behind]


def shown_around(
    fault: Diagnosis,
    at: datetime,
    timing: Timing,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> bool:
    """Whether some of the fault's evidence is close to `at`. The fault itself may be much older, and have
    become worse. A fault that only degrades its node must have been shown after `since`, the start of the
    gang that failed."""
    if since is not None and fault.level is QuarantineLevel.PREFER and fault.seen_at <= since:
        return False
    window = timedelta(seconds=timing.blame_window_s)
    return any(abs(at - e.at) <= window and (until is None or e.at <= until) for e in fault.evidence)


def proved_before(world: World, recovery: Recovery, fault: Diagnosis) -> bool:
    """Whether a cause of the recovery has proved to be this fault, and the fault only degrades its node."""
    causes = (world.incidents.get(name) for name in recovery.cause_names)
    superseded = any(one is not None and one.status.superseded_by == fault.name for one in causes)
    return superseded and fault.level is QuarantineLevel.PREFER


def _in_question(world: World, faults: list[Diagnosis], timing: Timing) -> Iterator[tuple[Incident, GangRef]]:
    """Yields gangs' own Incidents: all open Incidents and, of the thousands of closed Incidents, those from
    the time around the evidence of the faults."""
    window = timedelta(seconds=timing.blame_window_s)
    times = sorted(evidence.at for fault in faults for evidence in fault.evidence)
    for incident in world.incidents.values() if faults else ():
        gang, at = incident.spec.gang, incident.spec.detected_at
        if gang is None or incident.status.superseded_by:
            continue
        following = bisect_left(times, at - window)
        is_near = following < len(times) and times[following] <= at + window
        if is_near or incident.status.phase is IncidentPhase.OPEN:
            yield incident, gang


def _behind_node(
    world: World, diagnosis: Diagnosis, final: list[Diagnosis], timing: Timing
) -> Diagnosis | None:
    """Returns the fault of a different node that may have stopped the gangs for which this node was blamed;
    the oldest fault if there are several."""
    incident = world.incidents.get(diagnosis.name)
    if incident is None or diagnosis.settles_at is None:
        return None
    others = [fault for fault in final if fault.node != diagnosis.node]
    behind = (
        fault
        for recovery in (world.recoveries.values() if others else ())
        if incident.metadata.name in recovery.cause_names
        for fault in others
        if _is_behind(world, fault, incident, recovery.spec.gang, recovery, timing)
    )
    return min(behind, key=lambda fault: (fault.detected_at, fault.name), default=None)


def _doubted(world: World, diagnosis: Diagnosis, fault: Diagnosis) -> Diagnosis:
    (own,) = diagnosis.suspects
    words = f"{diagnosis.summary}. But {fault.summary[:128]}: this later fault is final, and may be the cause"
    if world.nodes[diagnosis.node].quarantine is not None:
        words += (
            f". {own.node} stays in quarantine for {own.why} until a repair or a person ends the quarantine"
        )
    suspects = (*fault.suspects, msgspec.structs.replace(own, score=0.5))
    return msgspec.structs.replace(diagnosis, summary=words, suspects=suspects)


def _is_behind(
    world: World, fault: Diagnosis, incident: Incident, gang: GangRef, recovery: Recovery, timing: Timing
) -> bool:
    attempt = _attempt(recovery, incident)
    phases = recovery.status.phases
    ran_at = next((p.at for p in phases if p.phase is Phase.VERIFYING and p.attempt == attempt), None)
    if fault.fault is Fault.HOST:  # explains any failure, and is noticed some time later
        return _kills(fault, gang) and (ran_at is None or fault.detected_at <= ran_at)
    ran_on = recovery.spec.nodes if attempt == 1 else recovery.nodes
    if fault.node not in ran_on:
        return False
    since = started_at(world, recovery, attempt)
    return shown_around(fault, incident.spec.detected_at, timing, since=since, until=ran_at)


def _kills(fault: Diagnosis, gang: GangRef) -> bool:
    return any(affected.dead and affected.gang.ref.uid == gang.uid for affected in fault.affected)


def _took_up(world: World, incident: Incident, gang: GangRef) -> Recovery | None:
    """Returns the recovery that names the Incident as a cause."""
    name = incident.metadata.name
    return next((r for r in world.history(gang.uid) if name in r.cause_names), None)


def _attempt(recovery: Recovery, incident: Incident) -> int:
    """Returns the attempt that was begun for the Incident, or that the Incident joined."""
    name = incident.metadata.name
    return next((cause.attempt for cause in recovery.status.causes if cause.incident == name), 1)
