"""Why a job is as it is: a story in plain words, from the API objects alone. Pure.

It goes as the facts did: what was seen, who is to blame, what was decided and what was not, what was done to
the job, and what a person can do next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from recover.api import (
    ActionRecord,
    CheckpointChoice,
    GangRef,
    Incident,
    Outcome,
    Phase,
    RecipeOutcome,
    Recovery,
    RecoveryStatus,
)
from recover.checkpoints.annotation import REPAIR
from recover.consent import AUTO_RECOVERY, OptIn
from recover.model import Gang
from recover.resources import INCIDENTS, RECOVERIES
from recover.stories.absence import Absence
from recover.stories.incident import TOLD_MAX, blame, decided, newest_first, seen
from recover.stories.words import (
    FAULTS,
    Command,
    Line,
    Section,
    Story,
    Tone,
    ago,
    clock,
    counted,
    duration,
    explained,
    next_steps,
    one_line,
    printable,
    some,
)

__all__ = ["PHASE_WORDS", "Job", "why_job"]

PHASE_WORDS: dict[Phase, tuple[str, Tone]] = {
    Phase.PLANNED: ("its recovery is planned", Tone.WAITING),
    Phase.STOPPING: ("its old pods are being stopped", Tone.WAITING),
    Phase.FENCING: ("it waits for proof that a dead node is off", Tone.WAITING),
    Phase.CHOOSING: ("its last complete checkpoint is being chosen", Tone.WAITING),
    Phase.RESUMING: ("it is being started again", Tone.WAITING),
    Phase.VERIFYING: ("it runs again; waiting for its first step as the proof", Tone.WAITING),
    Phase.SUCCEEDED: ("it was recovered", Tone.GOOD),
    Phase.ESCALATED: ("its recovery needs a person", Tone.BAD),
    Phase.FAILED: ("its recovery ended without a restart", Tone.BAD),
    Phase.BLOCKED: ("its recovery is blocked", Tone.BAD),
}


class Job(msgspec.Struct, frozen=True):
    """The job a story is about. `gang` is None where the job itself is not shown; its history remains."""

    ref: GangRef
    gang: Gang | None = None
    absence: Absence = Absence.DELETED
    """Why there is no `gang`."""
    consent: OptIn | None = OptIn.DISABLED
    """None where the job leaves it to its namespace, and that may not be read."""
    misread: tuple[str, ...] = ()
    """What its people wrote for us that does not do what it was meant to, a sentence each."""


def why_job(
    job: Job,
    recoveries: Iterable[Recovery],
    incidents: Iterable[Incident],
    now: datetime,
    *,
    hidden: Collection[str] = (),
) -> Story:
    """The story of one job; recoveries and incidents of others are left out. Of hidden kinds (by their
    plural) nothing may be read."""
    mine = [r for r in recoveries if _is_same(r.spec.gang, job.ref)]
    mine.sort(key=lambda r: (r.spec.detected_at, r.spec.number), reverse=True)
    causes = {name for r in mine for name in (r.spec.incident, *(c.incident for c in r.status.causes))}
    known = list(incidents)
    causes |= {i.status.superseded_by for i in known if _concerns(i, job.ref, causes)} - {""}
    about = newest_first(i for i in known if _concerns(i, job.ref, causes))
    decisions = [a for i in about[:TOLD_MAX] for a in i.status.actions if _is_about(a, job.ref)]

    sections = [
        Section("What cannot be used", tuple(Line(one_line(text), Tone.BAD) for text in job.misread)),
        Section("What was seen", seen(about, now)),
        Section("Who is to blame", blame(about)),
        Section("What was decided", decided(decisions, now)),
        *(_recovery(r, now) for r in mine[:TOLD_MAX]),
        Section("Earlier recoveries", _earlier(mine[TOLD_MAX:], now)),
        Section("What to do next", next_steps(_reasons(mine[:1], decisions))),
    ]
    return Story(
        subject=str(job.ref),
        verdict=_job_verdict(job, mine, about, decisions, now, hidden),
        sections=tuple(section for section in sections if section.lines),
        commands=_job_commands(job, mine, about),
    )


def _is_same(one: GangRef, other: GangRef) -> bool:
    """By name, not by uid: a job that was deleted and submitted again keeps its story."""
    return (one.kind, one.namespace, one.name) == (other.kind, other.namespace, other.name)


def _concerns(incident: Incident, ref: GangRef, causes: set[str]) -> bool:
    gang = incident.spec.gang
    return (
        incident.metadata.name in causes
        or (gang is not None and _is_same(gang, ref))
        or any(_is_same(victim, ref) for victim in incident.status.victims)
    )


def _is_about(action: ActionRecord, ref: GangRef) -> bool:
    """Acts on nodes concern everybody who ran there; acts on another job do not."""
    return action.action in ("quarantine-node", "lift-spare") or action.target == str(ref)


def _job_verdict(
    job: Job,
    mine: Sequence[Recovery],
    about: Sequence[Incident],
    decisions: Sequence[ActionRecord],
    now: datetime,
    hidden: Collection[str],
) -> Line:
    gone = "" if job.gang is not None else f" {job.absence.of(job.ref)}"
    mark = job.gang.mark if job.gang is not None and job.gang.suspended else None
    if mark is not None and mark.did == "stopped" and mark.recovery not in {r.metadata.name for r in mine}:
        if RECOVERIES.plural in hidden:
            return Line(
                f"Rekindle has stopped it; Recovery {mark.recovery} tells the rest, and you may not read it.",
                Tone.WAITING,
            )
        return Line(
            f"Rekindle has stopped it, and Recovery {mark.recovery}, which was to start it again, is gone. "
            "Lift its suspend field to let it run.",
            Tone.BAD,
        )
    if mine:
        return _recovery_verdict(mine[0], now, gone)
    if job.gang is not None and job.gang.terminal is not None:
        ended = "completed" if job.gang.terminal.succeeded else "was failed for good by its framework"
        return Line(f"The job {ended}; Rekindle did nothing to it.")
    untouched = [a for a in decisions if a.action == "restart-gang" and a.outcome is not Outcome.DONE]
    if untouched:
        last = max(untouched, key=lambda a: a.at)
        did = "would restart it" if last.outcome is Outcome.WOULD else "left it alone"
        return Line(f"Rekindle {did} ({last.reason}). {explained(last.reason)}{gone}", Tone.WAITING)
    if about:
        return Line(f"A fault concerns it, and nothing was done to the job so far.{gone}", Tone.WAITING)
    if INCIDENTS.plural in hidden or RECOVERIES.plural in hidden:
        return Line(f"Nothing that concerns this job is among what you may read. {_consent(job)}")
    return Line(f"Nothing that concerns this job was seen, and nothing was done to it. {_consent(job)}")


def _recovery_verdict(recovery: Recovery, now: datetime, gone: str) -> Line:
    status = recovery.status
    words, tone = PHASE_WORDS[status.phase]
    since = status.phases[-1].at if status.phases else recovery.spec.detected_at
    cause = FAULTS[recovery.spec.fault]
    text = f"After {cause}, {words}" if recovery.active else f"After {cause}, {words} {ago(since, now)}"
    if recovery.active:
        text += f" (since {duration((now - since).total_seconds())}, attempt {status.attempt})"
    if not recovery.active and status.resumed_step is not None:
        text += f": it went on at step {status.resumed_step}"
    return Line(f"{text}.{gone}", tone)


def _consent(job: Job) -> str:
    match job.consent:
        case OptIn.ENABLED:
            ask = f"rekindle doctor {job.ref.namespace}/{job.ref.name}"
            return f"It would be restarted after a fault if mode and limits allow it; `{ask}` tells."
        case OptIn.OBSERVE:
            return "After a fault Rekindle would only say what it would do: the job asks to be observed."
        case OptIn.DISABLED:
            return f"It would be left alone after a fault: {AUTO_RECOVERY} is not enabled for it."
        case None:
            return (
                f"Whether it would be restarted after a fault is not known: it says no {AUTO_RECOVERY}, and "
                f"you may not read its namespace {job.ref.namespace}, which may say it."
            )


def _recovery(recovery: Recovery, now: datetime) -> Section:
    status = recovery.status
    words, tone = PHASE_WORDS[status.phase]
    lines = [Line(one_line(status.message) or words, tone)]
    lines += _causes(status)
    if status.phases:
        attempt = f" of attempt {status.attempt}" if status.attempt > 1 else ""
        lines.append(Line(f"phases{attempt}: {_phases(status, now, active=recovery.active)}"))
    if status.avoid_nodes:
        lines.append(Line(f"kept off {some(status.avoid_nodes)}"))
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
    if status.failed_log is not None:
        log = status.failed_log
        whose = f"{log.pod}'s log" + (f" on {log.node}" if log.node else "")
        if log.first_error:
            lines.append(Line(f"the first error in {whose}: {one_line(log.first_error)}"))
        unsaid = "" if log.first_error else ", which tells no error from before the stop"
        lines.append(Line(f"the end of {whose}{unsaid}:"))
        lines += [Line(text, Tone.DETAIL) for text in printable(log.tail).splitlines()[-12:]]
    title = f"Recovery {recovery.spec.number}: {recovery.metadata.name} ({status.phase})"
    return Section(title, tuple(lines))


def _causes(status: RecoveryStatus) -> Iterable[Line]:
    for cause in status.causes:
        joined = "" if cause.attempt == 1 else f" (attempt {cause.attempt})"
        yield Line(f"because {one_line(cause.summary) or FAULTS[cause.fault]}{joined}")


def _phases(status: RecoveryStatus, now: datetime, *, active: bool) -> str:
    """`Stopping 0.4 s, Choosing 1.2 s, ...`: how long each took in this attempt; the present one so far."""
    these = [p for p in status.phases if p.attempt == status.attempt] or status.phases
    took = [f"{p.phase} {duration((after.at - p.at).total_seconds())}" for p, after in pairwise(these)]
    last = these[-1]
    so_far = f" {duration((now - last.at).total_seconds())} so far" if active else f" at {clock(last.at)}"
    return ", ".join([*took, f"{last.phase}{so_far}"])


def _checkpoint(choice: CheckpointChoice) -> Iterable[Line]:
    if choice.verified:
        yield Line(f"chosen, as the newest complete checkpoint: step {choice.step}, {choice.path}")
    else:
        yield Line(
            f"no checkpoint was verified: {one_line(choice.reason) or 'the framework chose by itself'}"
        )
    if choice.digests:
        yield Line(one_line(choice.digests), Tone.DETAIL)
    yield from (Line(f"repaired: {one_line(change)}") for change in choice.repaired)
    if choice.tracker:
        yield Line(f"{one_line(choice.tracker)}; {REPAIR}: tracker on the job lets Rekindle rewrite it")
    if choice.scan_s is not None:
        cost = f", and {choice.idle_gpu_s:.0f} GPU-seconds stood free" if choice.idle_gpu_s else ""
        yield Line(f"the scan took {duration(choice.scan_s)}{cost}", Tone.DETAIL)
    for rejected in choice.rejected:
        yield Line(f"not step {rejected.step} ({rejected.path}): {one_line(rejected.reason)}", Tone.DETAIL)


def _known_issues(status: RecoveryStatus) -> Iterable[Line]:
    for use in status.recipes:
        tone = Tone.BAD if use.outcome in (RecipeOutcome.HELD, RecipeOutcome.GAVE_UP) else Tone.WAITING
        attempt = f" (attempt {use.attempt})" if use.attempt > 1 else ""
        yield Line(f"known issue {use.name}{attempt}: {one_line(use.message)}", tone)
        yield Line(f"seen: {one_line(use.seen)}", Tone.DETAIL)
        if use.advice:
            yield Line(f"advice to its owner: {one_line(use.advice)}", Tone.DETAIL)


def _steps(status: RecoveryStatus) -> Iterable[Line]:
    if status.resumed_step is not None:
        before = f"; it had reached step {status.last_step}" if status.last_step is not None else ""
        yield Line(f"its first step after the resume was {status.resumed_step}{before}", Tone.GOOD)
    if status.lost_steps is not None:
        cost = (
            f", {status.lost_gpu_s:.0f} GPU-seconds without progress" if status.lost_gpu_s is not None else ""
        )
        yield Line(f"lost {counted(status.lost_steps, 'step')}{cost}")
    if status.totals is not None and status.totals.recoveries > 1:
        total = status.totals
        yield Line(
            f"so far {counted(total.recoveries, 'recovery', 'recoveries')} of this job lost "
            f"{counted(total.lost_steps, 'step')} and {total.lost_gpu_s:.0f} GPU-seconds"
        )


def _earlier(recoveries: Sequence[Recovery], now: datetime) -> tuple[Line, ...]:
    return tuple(
        Line(f"{ago(r.spec.detected_at, now)}: {r.metadata.name}, {FAULTS[r.spec.fault]}, {r.status.phase}")
        for r in recoveries
    )


def _reasons(recoveries: Sequence[Recovery], decisions: Sequence[ActionRecord]) -> list[str]:
    found = [r for x in recoveries for r in (x.status.reason, *(c.reason for c in x.status.conditions))]
    return [*found, *(a.reason for a in decisions if a.outcome is not Outcome.DONE)]


def _job_commands(job: Job, mine: Sequence[Recovery], about: Sequence[Incident]) -> tuple[Command, ...]:
    ref = job.ref
    target = f"{ref.kind.lower()} -n {ref.namespace} {ref.name}"
    commands: list[Command] = []
    if mine:
        name = mine[0].metadata.name
        commands.append(
            Command(f"kubectl describe recovery -n {ref.namespace} {name}", "the recovery as stored")
        )
    nodes = dict.fromkeys(i.status.blamed_node for i in about if i.status.blamed_node)
    commands += [Command(f"rekindle why node/{n}", "why that node was blamed") for n in list(nodes)[:2]]
    if job.gang is not None and job.consent in (OptIn.OBSERVE, OptIn.DISABLED):
        commands.append(
            Command(f"kubectl annotate {target} {AUTO_RECOVERY}=enabled --overwrite", "let it be restarted")
        )
    if mine and mine[0].active:
        commands.append(Command(f"kubectl annotate {target} rekindle.dev/hold=true", "freeze it"))
    return (*commands, Command("rekindle status", "the whole cluster"))
