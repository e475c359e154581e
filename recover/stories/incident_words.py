"""Tells what an Incident records: the evidence, the culprit, and which actions were decided or refused.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from detectors.text.printing import one_line
from detectors.wire.contract import Origin
from recover.api import ActionRecord, Blame, Incident, IncidentPhase
from recover.api.reasons import Reason
from recover.stories.words import FAULTS, ORIGINS, Line, Tone, ago, clock, counted, record
from recover.triage.held_back import holds_back

__all__ = ["TOLD_MAX", "blame", "decided", "newest_first", "seen"]

TOLD_MAX = 3
"""Number of Incidents and Recoveries that are told in full. Further Incidents are only counted, and further
Recoveries get one line each."""
_OWNED_BY_NODES = (Origin.KERNEL, Origin.DRIVER)


def newest_first(incidents: Iterable[Incident]) -> list[Incident]:
    return sorted(incidents, key=lambda i: i.spec.detected_at, reverse=True)


def seen(incidents: Sequence[Incident], now: datetime, at_most: int = TOLD_MAX) -> tuple[Line, ...]:
    lines: list[Line] = []
    for incident in incidents[:at_most]:
        spec, status = incident.spec, incident.status
        summary = status.summary or FAULTS[incident.fault]
        state = "open" if status.phase is IncidentPhase.OPEN else "closed"
        lines.append(Line(f"{ago(spec.detected_at, now)}: {summary} ({incident.metadata.name}, {state})"))
        lines += [
            Line(
                f"{clock(e.at)} {ORIGINS[e.origin]}"
                + (f" {'of' if e.origin in _OWNED_BY_NODES else 'on'} {e.node}" if e.node else "")
                + (f", pod {e.pod}" if e.pod else "")
                + f": {e.code}"
                + (f": {one_line(e.text)}" if e.text else ""),
                Tone.DETAIL,
            )
            for e in status.evidence
        ]
        if status.superseded_by:
            lines.append(Line(f"belongs to the fault of {status.superseded_by}", Tone.DETAIL))
    if len(incidents) > at_most:
        lines.append(Line(f"and {counted(len(incidents) - at_most, 'earlier incident')}"))
    return tuple(lines)


def blame(incidents: Sequence[Incident]) -> tuple[Line, ...]:
    told = [i for i in incidents[:TOLD_MAX] if not i.status.superseded_by]
    return tuple(line for incident in told for line in _blamed(incident))


def _blamed(incident: Incident) -> Iterable[Line]:
    status = incident.status
    if status.members:
        many = counted(len(status.members), "node")
        if holds_back(incident) is not Reason.FLEET_BRAKE:
            yield Line(f"{many}, each for {incident.fault}")
            return
        yield Line(
            f"probably a common cause, because {many} showed the fault at once: no single node is the culprit"
        )
        return
    match status.blame:
        case Blame.NODE:
            yield Line(f"node {status.blamed_node or incident.spec.node}, for {incident.fault}")
        case Blame.APPLICATION:
            yield Line("the program: no node is the culprit")
        case Blame.RESOURCES:
            yield Line(
                "the job used up its memory, disk or quota: neither a node nor the program is the culprit"
            )
        case Blame.UNKNOWN:
            yield Line("not known: the evidence does not point to one node, so Rekindle quarantines no node")
    for suspect in status.suspects:
        why = one_line(suspect.why)
        if suspect.score >= 1:
            yield Line(f"proof against {suspect.node}: {_proof(incident, suspect.node, why)}", Tone.DETAIL)
        else:
            yield Line(
                f"suspect {suspect.node} ({suspect.score:.0%})" + (f": {why}" if why else ""), Tone.DETAIL
            )


def _proof(incident: Incident, node: str, code: str) -> str:
    """Returns the code of the proof, with the source that reported it if the evidence names the source."""
    origin = next((e.origin for e in incident.status.evidence if (e.node, e.code) == (node, code)), None)
    return f"{code}, reported by {ORIGINS[origin]}" if origin is not None else code or "its evidence"


def decided(decisions: Sequence[ActionRecord], now: datetime, verdict: str = "") -> tuple[Line, ...]:
    """Returns the lines of the decisions. The meaning of a reason is given only once, and not at all if the
    verdict contains it."""
    lines: list[Line] = []
    for action in decisions:
        head, *details = record(action, now)
        said = {verdict, *(line.text for line in lines)}
        lines.append(head)
        lines += [one for one in details if not any(one.text in text for text in said)]
    return tuple(lines)
