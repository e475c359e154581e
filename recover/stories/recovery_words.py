"""Tells one recovery of a job: its headline, and its causes, phases, checkpoint and steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from detectors.text.printing import one_line, printable
from recover.api import CheckpointChoice, Phase, RecipeOutcome, Recovery, RecoveryStatus
from recover.api.reasons import Reason
from recover.checkpoints.annotation import REPAIR
from recover.stories.facts import error_of
from recover.stories.waiting_ranks import Ranks
from recover.stories.words import (
    FAULTS,
    Line,
    Section,
    Tone,
    ago,
    cause_words,
    clock,
    counted,
    duration,
    explained,
    some,
)

__all__ = ["PHASE_WORDS", "began_lower", "earlier", "has_stopped", "headline", "section"]

PHASE_WORDS: dict[Phase, tuple[str, Tone]] = {
    Phase.PLANNED: ("the recovery of the job is planned", Tone.WAITING),
    Phase.STOPPING: ("the old pods of the job are being stopped", Tone.WAITING),
    Phase.FENCING: ("the recovery waits for proof that a dead node is off", Tone.WAITING),
    Phase.CHOOSING: ("the newest complete checkpoint is being chosen", Tone.WAITING),
    Phase.RESUMING: ("the job is being started again", Tone.WAITING),
    Phase.VERIFYING: (
        "the job runs again, and Rekindle waits for its first new step, which proves the recovery",
        Tone.WAITING,
    ),
    Phase.SUCCEEDED: ("the job was recovered", Tone.GOOD),
    Phase.ESCALATED: ("the recovery of the job ended, and a person must act", Tone.BAD),
    Phase.FAILED: ("the recovery of the job ended early, without proof that the job trains again", Tone.BAD),
    Phase.BLOCKED: ("the recovery of the job is blocked", Tone.BAD),
}

_WAITING = (Phase.RESUMING, Phase.BLOCKED)


def began_lower(status: RecoveryStatus) -> bool:
    """Whether the job repeats steps that it had made, for another reason than the age of its newest
    checkpoint."""
    if status.reason in (Reason.RESUMED_OLDER, Reason.RESUMED_FROM_SCRATCH):
        return True
    chosen = status.checkpoint is not None and status.checkpoint.verified
    if chosen or status.resumed_step is None or status.last_step is None:
        return False
    return status.resumed_step <= status.last_step


def headline(recovery: Recovery, ranks: Ranks, now: datetime) -> Line:
    """Returns the state or end of the recovery in one sentence."""
    status = recovery.status
    words, tone = PHASE_WORDS[status.phase]
    since = status.phases[-1].at if status.phases else recovery.spec.detected_at
    where = [cause.node for cause in status.causes if cause.node]
    after = f"After {cause_words(recovery.spec.fault, error_of(recovery), where)}, "
    if recovery.active:
        for_now = f"attempt {status.attempt}, this phase began {ago(since, now)}"
        return _standing(status, ranks, after, for_now)
    if status.phase is Phase.SUCCEEDED and began_lower(status):
        why = f" ({status.reason})" if status.reason else ""
        return Line(f"{after}the job runs again, but {_lower(status)}{why}, {ago(since, now)}.", Tone.BAD)
    if (status.phase, status.reason) == (Phase.ESCALATED, Reason.HELD):  # a person has changed the job
        return Line(
            f"{after}the recovery ended ({status.reason}) {ago(since, now)}: {_message(status)}.", tone
        )
    why = f" ({status.reason})" if tone is Tone.BAD and status.reason else ""
    at = f": it continued at step {status.resumed_step}" if status.resumed_step is not None else ""
    what, comma, then = words.partition(",")
    return Line(f"{after}{what} {ago(since, now)}{comma}{then}{why}{at}.", tone)


def _message(status: RecoveryStatus) -> str:
    return one_line(status.message).rstrip(".")


def _lower(status: RecoveryStatus) -> str:
    """Returns from which step the job began again, and which steps it repeats."""
    first, last = status.resumed_step, status.last_step
    if first is None:
        return "began again from an earlier step"
    if last is None or last < first:
        return f"began again from step {first}"
    repeated = counted(last - first + 1, "step")
    return f"repeats {repeated}: it had made step {last}, and its first new step is {first}"


def _standing(status: RecoveryStatus, ranks: Ranks, after: str, for_now: str) -> Line:
    """Returns the headline of an active recovery. If a rank fits on no node, the headline says so, whatever
    the phase says."""
    words, tone = PHASE_WORDS[status.phase]
    said = _message(status)
    if status.phase in _WAITING and (status.reason == Reason.NO_CAPACITY or ranks.unplaced):
        why = ranks.waits or said
        return Line(
            f"{after}the job waits for nodes with room ({for_now})" + (f": {why}." if why else "."), Tone.BAD
        )
    if status.phase is Phase.BLOCKED:
        reason = f"{status.reason}, " if status.reason else ""
        return Line(f"{after}{words} ({reason}{for_now})" + (f": {said}." if said else "."), tone)
    if status.phase is Phase.RESUMING and ranks.known:
        return Line(f"{after}{words} ({for_now}): {ranks.running} of {ranks.size} ranks run.", tone)
    return Line(f"{after}{words} ({for_now}).", tone)


def section(recovery: Recovery, now: datetime) -> Section:
    status = recovery.status
    words, tone = PHASE_WORDS[status.phase]
    lines = [Line(one_line(status.message) or words, tone)]
    lines += _causes(status)
    if status.phases:
        attempt = f" of attempt {status.attempt}" if status.attempt > 1 else ""
        lines.append(Line(f"phases{attempt}: {_phases(status, now, active=recovery.active)}"))
    if status.avoid_nodes:
        lines.append(Line(f"excluded nodes: {some(status.avoid_nodes)}"))
    if status.suspects:
        lines.append(Line(f"suspected nodes, used only if no other node has room: {some(status.suspects)}"))
    if status.checkpoint is not None:
        lines += _checkpoint(status.checkpoint)
    lines += _known_issues(status)
    lines += _steps(status)
    for condition in status.conditions:
        if meaning := explained(condition.reason):
            lines += [Line(f"{condition.reason}: {meaning}", Tone.WAITING)]
        if condition.message and condition.message != status.message:
            lines.append(Line(one_line(condition.message), Tone.DETAIL))
    if status.reason and (meaning := explained(status.reason)):
        lines.append(Line(f"{status.reason}: {meaning}", tone))
    lines += _totals(status)
    if status.failed_log is not None:
        log = status.failed_log
        whose = f"{log.pod}'s log" + (f" on {log.node}" if log.node else "")
        if log.first_error:
            lines.append(Line(f"the first error in {whose}: {one_line(log.first_error)}"))
        unsaid = "" if log.first_error else ", which shows no error before the stop"
        lines.append(Line(f"the end of {whose}{unsaid}:"))
        lines += [Line(text, Tone.DETAIL) for text in printable(log.tail).splitlines()[-12:]]
    title = f"Recovery {recovery.spec.number}: {recovery.metadata.name} ({status.phase})"
    return Section(title, tuple(lines))


def _causes(status: RecoveryStatus) -> Iterable[Line]:
    for cause in status.causes:
        joined = "" if cause.attempt == 1 else f" (attempt {cause.attempt})"
        yield Line(f"because {one_line(cause.summary) or FAULTS[cause.fault]}{joined}")


def _phases(status: RecoveryStatus, now: datetime, *, active: bool) -> str:
    """Returns `Stopping 0.4 s, Choosing 1.2 s, ...`: the time that each phase took in this attempt, and the
    time of the present phase so far."""
    these = [p for p in status.phases if p.attempt == status.attempt] or status.phases
    took = [f"{p.phase} {duration((after.at - p.at).total_seconds())}" for p, after in pairwise(these)]
    last = these[-1]
    so_far = f" {duration((now - last.at).total_seconds())} so far" if active else f" at {clock(last.at)}"
    return ", ".join([*took, f"{last.phase}{so_far}"])


def _checkpoint(choice: CheckpointChoice) -> Iterable[Line]:
    if choice.verified:
        yield Line(
            f"the newest complete checkpoint, which was chosen: step {choice.step}, {one_line(choice.path)}"
        )
        if choice.reason:
            yield Line(one_line(choice.reason), Tone.DETAIL)
    else:
        yield Line(
            f"no checkpoint was verified: {one_line(choice.reason) or 'the framework chose the checkpoint'}"
        )
    if choice.digests:
        yield Line(one_line(choice.digests), Tone.DETAIL)
    yield from (Line(f"repaired: {one_line(change)}") for change in choice.repaired)
    if choice.tracker:
        yield Line(
            f"{one_line(choice.tracker)}; the annotation {REPAIR}: tracker on the job lets Rekindle "
            "correct that file"
        )
    if choice.unfound:
        yield Line(one_line(choice.unfound), Tone.BAD)
    if choice.scan_s:
        gpu_s = f"{choice.idle_gpu_s:.0f} GPU-seconds"
        cost = f", in which the job's GPUs were idle ({gpu_s})" if choice.idle_gpu_s else ""
        yield Line(f"the scan took {duration(choice.scan_s)}{cost}", Tone.DETAIL)
    for rejected in choice.rejected:
        why = one_line(rejected.reason)
        yield Line(f"not step {rejected.step} ({one_line(rejected.path)}): {why}", Tone.DETAIL)


def _known_issues(status: RecoveryStatus) -> Iterable[Line]:
    for use in status.recipes:
        tone = Tone.BAD if use.outcome in (RecipeOutcome.HELD, RecipeOutcome.GAVE_UP) else Tone.WAITING
        attempt = f" (attempt {use.attempt})" if use.attempt > 1 else ""
        yield Line(f"known issue {use.name}{attempt}: {one_line(use.message)}", tone)
        yield Line(f"recognised by: {one_line(use.seen)}", Tone.DETAIL)
        if use.advice:
            yield Line(f"advice to the owner of the job: {one_line(use.advice)}", Tone.DETAIL)


def _steps(status: RecoveryStatus) -> Iterable[Line]:
    if status.resumed_step is not None:
        before = (
            f"; the last step before the failure was {status.last_step}"
            if status.last_step is not None
            else ""
        )
        yield Line(f"the first step after the resume was {status.resumed_step}{before}", Tone.GOOD)
    if status.lost_steps is not None:
        cost = f", and {status.lost_gpu_s:.0f} GPU-seconds in all" if status.lost_gpu_s is not None else ""
        yield Line(f"lost {counted(status.lost_steps, 'step')}{cost}")


def _totals(status: RecoveryStatus) -> Iterable[Line]:
    if status.totals is not None and status.totals.recoveries > 1:
        total = status.totals
        yield Line(
            f"in total, {counted(total.recoveries, 'recovery', 'recoveries')} of this job lost "
            f"{counted(total.lost_steps, 'step')} and {total.lost_gpu_s:.0f} GPU-seconds"
        )


def earlier(recoveries: Sequence[Recovery], now: datetime) -> tuple[Line, ...]:
    return tuple(
        Line(
            f"{ago(r.spec.detected_at, now)}: {r.metadata.name}, "
            f"{cause_words(r.spec.fault, error_of(r))}, {r.status.phase}"
        )
        for r in recoveries
    )


def has_stopped(recovery: Recovery) -> bool:
    """Whether the recovery has stopped its job at least once."""
    return any(one.phase in _AFTER_A_STOP for one in recovery.status.phases)


_AFTER_A_STOP = frozenset({Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.RESUMING, Phase.VERIFYING})
