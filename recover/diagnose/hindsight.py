"""Blame that was settled too early: a gang's own incident that proves to be a node's fault after all. Pure.

Agents may be slow, clocks differ, and Kubernetes misses a node only after a while: the evidence may come when
the gang is stopped already, or trains again. What was shown close to the gang's failure, on a node where its
ranks ran, and before all of them ran again, is what lay behind it, whenever it is told.

A fault that only degrades its node, for example a contained memory error, ends only programs that run when it
is shown. It explains no failure of a later start, unless it is shown again after that start. A fault of the
level `cordon` ends whatever starts on its node.
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
    """Name of a gang's own incident -> the node's fault that it proves to be; of several the oldest."""
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
    """The same diagnoses. One that no final verdict confirms says so, where another node that may lie behind
    it has shown a final one. Its own agent has found a fault all the same, so blame and cordon stay."""
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
    """Some of its evidence is close to `at`. The fault itself may be much older, and have become worse. A
    fault that only degrades its node must have been shown after `since`, the start of what failed."""
    if since is not None and fault.level is QuarantineLevel.PREFER and fault.seen_at <= since:
        return False
    window = timedelta(seconds=timing.blame_window_s)
    return any(abs(at - e.at) <= window and (until is None or e.at <= until) for e in fault.evidence)


def proved_before(world: World, recovery: Recovery, fault: Diagnosis) -> bool:
    """A cause of the recovery has proved to be this fault, which only degrades its node."""
    causes = (world.incidents.get(name) for name in recovery.cause_names)
    superseded = any(one is not None and one.status.superseded_by == fault.name for one in causes)
    return superseded and fault.level is QuarantineLevel.PREFER


def _in_question(world: World, faults: list[Diagnosis], timing: Timing) -> Iterator[tuple[Incident, GangRef]]:
    """Gangs' own incidents: all that are open, and of the thousands that are closed those of such a time."""
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
    """Returns another node whose fault may have stopped the gangs for which this one was blamed; of several
    nodes the one with the oldest fault."""
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
    if fault.fault is Fault.HOST:  # it explains any failure, and is missed a while after it
        return _kills(fault, gang) and (ran_at is None or fault.detected_at <= ran_at)
    ran_on = recovery.spec.nodes if attempt == 1 else recovery.nodes
    if fault.node not in ran_on:
        return False
    since = started_at(world, recovery, attempt)
    return shown_around(fault, incident.spec.detected_at, timing, since=since, until=ran_at)


def _kills(fault: Diagnosis, gang: GangRef) -> bool:
    return any(affected.dead and affected.gang.ref.uid == gang.uid for affected in fault.affected)


def _took_up(world: World, incident: Incident, gang: GangRef) -> Recovery | None:
    """The recovery that names the incident as a cause."""
    name = incident.metadata.name
    return next((r for r in world.history(gang.uid) if name in r.cause_names), None)


def _attempt(recovery: Recovery, incident: Incident) -> int:
    """The one that was begun for it, or that it joined."""
    name = incident.metadata.name
    return next((cause.attempt for cause in recovery.status.causes if cause.incident == name), 1)
