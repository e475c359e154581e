"""Tells how a node is being repaired, or was repaired: phase, steps and checks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from detectors.text.printing import one_line
from detectors.wire.step_report import Outcome
from recover.api import Incident
from recover.api.repair_state import Repair, RepairPhase, RepairStep, StepKind, StepOutcome
from recover.stories.incident_words import TOLD_MAX
from recover.stories.words import Line, Tone, ago, duration, explained

__all__ = ["PHASE_WORDS", "repairs"]

PHASE_WORDS = {
    RepairPhase.WAITING: ("the repair waits before its next step", Tone.WAITING),
    RepairPhase.RESETTING: ("a device is being reset", Tone.WAITING),
    RepairPhase.REBOOTING: ("the node is being rebooted", Tone.WAITING),
    RepairPhase.VALIDATING: ("checks run before the node returns to service", Tone.WAITING),
    RepairPhase.RETURNED: ("the node is in service again", Tone.GOOD),
    RepairPhase.HANDED_OVER: ("the node was handed over to a person", Tone.BAD),
}
_STEPS = {StepKind.RESET: "reset", StepKind.REBOOT: "reboot", StepKind.VALIDATE: "validation"}
_ENDS = {
    StepOutcome.DONE: ("done", Tone.GOOD),
    StepOutcome.FAILED: ("failed", Tone.BAD),
    StepOutcome.TIMED_OUT: ("not done in time", Tone.BAD),
    StepOutcome.WITHDRAWN: ("taken back", Tone.PLAIN),
}
_CHECKS = {
    Outcome.PASSED: ("passed", Tone.GOOD),
    Outcome.FAILED: ("failed", Tone.BAD),
    Outcome.NOT_RUN: ("did not run", Tone.WAITING),
}


def repairs(incidents: Sequence[Incident], now: datetime) -> tuple[Line, ...]:
    """Returns the lines of the repairs among the newest Incidents."""
    lines: list[Line] = []
    for incident in incidents[:TOLD_MAX]:
        if incident.status.repair is not None:
            lines += _told(incident.status.repair, incident.metadata.name, now)
    return tuple(lines)


def _told(repair: Repair, name: str, now: datetime) -> Iterator[Line]:
    words, tone = PHASE_WORDS[repair.phase]
    since = f" {ago(repair.phases[-1].at, now)}" if repair.phases else ""
    why = f" ({repair.reason})" if repair.reason else ""
    yield Line(f"{repair.phase}{since}: {words}{why}; Incident {name}", tone)
    for text in (one_line(repair.message), explained(repair.reason)):
        if text:
            yield Line(text, Tone.DETAIL)
    for step in repair.steps:
        yield _step(step, now)
    for check in repair.checks:
        outcome, tone = _CHECKS[check.outcome]
        yield Line(
            f"check {check.name} {outcome}" + (f": {one_line(check.message)}" if check.message else ""), tone
        )


def _step(step: RepairStep, now: datetime) -> Line:
    what = f"{_STEPS[step.kind]} {step.number} ({step.job}), begun {ago(step.at, now)}"
    if step.outcome is None or step.ended_at is None:
        return Line(f"{what}: {one_line(step.message) or 'under way'}", Tone.WAITING)
    ended, tone = _ENDS[step.outcome]
    said = f": {one_line(step.message)}" if step.message else ""
    return Line(f"{what}: {ended} after {duration((step.ended_at - step.at).total_seconds())}{said}", tone)
