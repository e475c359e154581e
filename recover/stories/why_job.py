"""Explains in plain words why a job is in its present state, from the API objects alone. Pure.

The story follows the order of the facts: the evidence, the culprit, the decisions and refusals, what was done
to the job, and what a person can do next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from detectors.text.printing import one_line
from recover.api import Act, ActionRecord, GangRef, Incident, IncidentPhase, Outcome, Phase, Recovery
from recover.k8s.kinds import INCIDENTS, RECOVERIES
from recover.model.left_stopped import is_left_stopped, words
from recover.policy.commands import enabled_by, hold, name_of
from recover.policy.consent import OptIn
from recover.stories.around import Around
from recover.stories.facts import decisions_of, incident_record, job_record, recovery_detail
from recover.stories.hold_words import hold_lines, holds_on_job
from recover.stories.incident_words import TOLD_MAX, blame, decided, newest_first, seen
from recover.stories.installation import pause_record, paused
from recover.stories.job_state import Job, consent
from recover.stories.job_steps import steps_for_job, steps_for_recovery
from recover.stories.node_steps import steps_for_node
from recover.stories.records import WhyJobAnswer
from recover.stories.recovery_words import began_lower, earlier, headline, section
from recover.stories.waiting_ranks import Ranks, ranks_of
from recover.stories.words import Command, Line, Section, Story, Tone, lowered, named, why_not_taken
from recover.workloads import started_by

__all__ = ["Job", "job_answer", "why_job"]

_ON_NODES = (Act.QUARANTINE_NODE, Act.LIFT_SPARE, Act.REPAIR_NODE)


def why_job(
    job: Job,
    recoveries: Iterable[Recovery],
    incidents: Iterable[Incident],
    now: datetime,
    around: Around = Around(),  # noqa: B008 - frozen
    *,
    wide: bool = False,
) -> Story:
    """Returns the story of one job. Recoveries and Incidents of other jobs are left out. `wide` tells all of
    them in full."""
    at_most = None if wide else TOLD_MAX
    mine, about, decisions = _concerning(job, recoveries, incidents)
    ranks = ranks_of(job.gang, around)
    verdict = _verdict(job, mine, about, decisions, ranks, now, around.hidden)
    sections = [
        Section("Paused", paused(around.pause)),
        Section("Held", hold_lines(holds_on_job(job.gang, around.namespaces, now))),
        Section(
            "Settings on the job that Rekindle cannot use",
            tuple(Line(one_line(text), Tone.BAD) for text in job.misread),
        ),
        Section("Evidence", seen(about, now, at_most or len(about))),
        Section("Culprit", blame(about)),
        Section("Decisions", _decided(about, job.ref, now, verdict.text)),
        Section("Next steps", _next_steps(job, mine, about, around, now)),
        Section("Ranks that wait", ranks.lines),
        *(section(r, now) for r in mine[:at_most]),
        Section("Earlier recoveries", earlier([] if wide else mine[TOLD_MAX:], now)),
    ]
    return Story(
        subject=str(job.ref),
        verdict=named(str(job.ref), verdict),
        sections=tuple(one for one in sections if one.lines),
        commands=_commands(job, mine, about, around),
    )


def job_answer(
    job: Job,
    recoveries: Iterable[Recovery],
    incidents: Iterable[Incident],
    now: datetime,
    around: Around = Around(),  # noqa: B008 - frozen
) -> WhyJobAnswer:
    """Returns the story for programs."""
    mine, about, decisions = _concerning(job, recoveries, incidents)
    ranks = ranks_of(job.gang, around)
    return WhyJobAnswer(
        at=now,
        hidden=sorted(around.hidden),
        job=job_record(job.ref),
        absence=job.absence if job.gang is None else None,
        consent=job.consent,
        pause=pause_record(around.pause, now),
        holds=holds_on_job(job.gang, around.namespaces, now),
        headline=named(str(job.ref), _verdict(job, mine, about, decisions, ranks, now, around.hidden)).text,
        incidents=[incident_record(incident) for incident in about],
        decisions=[
            one
            for i in about
            for one in decisions_of(i.metadata.name, (a for a in i.status.actions if _is_about(a, job.ref)))
        ],
        recoveries=[recovery_detail(recovery, job.gang) for recovery in mine],
        next_steps=[line.text for line in _next_steps(job, mine, about, around, now)],
        commands=list(_commands(job, mine, about, around)),
    )


def _concerning(
    job: Job, recoveries: Iterable[Recovery], incidents: Iterable[Incident]
) -> tuple[list[Recovery], list[Incident], list[ActionRecord]]:
    """Returns the job's Recoveries and Incidents, newest first, and the decisions that are told in full."""
    mine = [r for r in recoveries if _is_same(r.spec.gang, job.ref)]
    mine.sort(key=lambda r: (r.spec.detected_at, r.spec.number), reverse=True)
    causes = {name for r in mine for name in r.cause_names}
    known = list(incidents)
    causes |= {i.status.superseded_by for i in known if _concerns(i, job.ref, causes)} - {""}
    about = newest_first(i for i in known if _concerns(i, job.ref, causes))
    return mine, about, [a for i in about[:TOLD_MAX] for a in i.status.actions if _is_about(a, job.ref)]


def _is_same(one: GangRef, other: GangRef) -> bool:
    """Whether both refer to the same job, by name and not by uid: a job that was deleted and submitted again
    keeps its story."""
    return (one.kind, one.namespace, one.name) == (other.kind, other.namespace, other.name)


def _concerns(incident: Incident, ref: GangRef, causes: set[str]) -> bool:
    gang = incident.spec.gang
    return (
        incident.metadata.name in causes
        or (gang is not None and _is_same(gang, ref))
        or any(_is_same(victim, ref) for victim in incident.status.victims)
    )


def _is_about(action: ActionRecord, ref: GangRef) -> bool:
    """Whether the action concerns the job: actions on nodes concern every job that ran there, actions on
    another job do not."""
    return action.action in _ON_NODES or action.target == str(ref)


def _decided(about: Sequence[Incident], ref: GangRef, now: datetime, verdict: str) -> tuple[Line, ...]:
    """Returns the lines of the decisions. If they belong to several Incidents, each Incident is named before
    its decisions: a recovery for one fault does not change a refusal for another."""
    by_incident = [
        (incident.metadata.name, [a for a in incident.status.actions if _is_about(a, ref)])
        for incident in about[:TOLD_MAX]
    ]
    by_incident = [(name, actions) for name, actions in by_incident if actions]
    lines: list[Line] = []
    for name, actions in by_incident:
        if len(by_incident) > 1:
            lines.append(Line(f"Incident {name}:"))
        lines += decided(actions, now, "\n".join([verdict, *(line.text for line in lines)]))
    return tuple(lines)


def _verdict(
    job: Job,
    mine: Sequence[Recovery],
    about: Sequence[Incident],
    decisions: Sequence[ActionRecord],
    ranks: Ranks,
    now: datetime,
    hidden: Collection[str],
) -> Line:
    gone = "" if job.gang is not None else f" {job.absence.of(job.ref)}"
    left = _left_stopped(job, mine, hidden)
    if left is not None:
        return left
    if mine:
        told = headline(mine[0], ranks, now)
        if job.gang is not None and job.gang.terminal is not None and job.gang.terminal.succeeded:
            return Line(f"The job has completed. Before that: {lowered(told.text)}", Tone.GOOD)
        return Line(told.text + gone, told.tone)
    if job.gang is not None and job.gang.terminal is not None:
        ended = (
            "completed"
            if job.gang.terminal.succeeded
            else "was marked as failed by its framework, and this is final"
        )
        return Line(f"The job {ended}. Rekindle did not stop or restart the job.")
    untouched = [a for a in decisions if a.action == Act.RESTART_GANG and a.outcome is not Outcome.DONE]
    if untouched:
        last = max(untouched, key=lambda a: a.at)
        did = "would restart the job" if last.outcome is Outcome.WOULD else "did not restart the job"
        why = " ".join(
            one.rstrip(".") + "." for one in why_not_taken(last.reason, one_line(last.message))[-1:]
        )
        return Line(f"Rekindle {did} ({last.reason}). {why}{gone}", Tone.WAITING)
    if about:
        return Line(
            f"A fault affects the job, and Rekindle has not acted on the job so far.{gone}", Tone.WAITING
        )
    if INCIDENTS.plural in hidden or RECOVERIES.plural in hidden:
        return Line(
            f"You have no permission to read the Incidents and Recoveries of this job. {consent(job)}"
        )
    return Line(
        f"Rekindle has seen no fault that affects this job, and has not acted on the job. {consent(job)}"
    )


def _left_stopped(job: Job, mine: Sequence[Recovery], hidden: Collection[str]) -> Line | None:
    """Returns the line for a job that is stopped by a recovery which was deleted, or which may not be read;
    None for any other job."""
    gang = job.gang
    mark = gang.mark if gang is not None and is_left_stopped(gang) else None
    if gang is None or mark is None or mark.recovery in {r.metadata.name for r in mine}:
        return None
    if RECOVERIES.plural in hidden:
        return Line(
            f"Rekindle has stopped this job. Recovery {mark.recovery} says why, and you may not "
            "read that Recovery.",
            Tone.WAITING,
        )
    return Line(f"{words(gang, mark)}.", Tone.BAD)


def _next_steps(
    job: Job, mine: Sequence[Recovery], about: Sequence[Incident], around: Around, now: datetime
) -> tuple[Line, ...]:
    """Returns each step once. A closed Incident leaves nothing to do."""
    steps = list(steps_for_recovery(mine[0], job, around, now)) if mine else []
    for incident in about[:TOLD_MAX]:
        if incident.status.phase is not IncidentPhase.OPEN or incident.status.superseded_by:
            continue
        for action in incident.status.actions:
            if action.outcome is Outcome.DONE or not _is_about(action, job.ref):
                continue
            if action.action in _ON_NODES:
                steps += steps_for_node(action, incident, around, now)
            elif not _is_over(mine, incident):
                steps += steps_for_job(action, incident, job, around, now)
    if not steps and (holds := holds_on_job(job.gang, around.namespaces, now)):
        steps = [f"When Rekindle may act on the job again: `{hold.fix}`." for hold in holds]
    if not steps and mine and mine[0].status.phase is Phase.SUCCEEDED and not began_lower(mine[0].status):
        steps = list(_nothing_to_do(mine[0], around))
    left = _left_stopped(job, mine, around.hidden)
    if left is not None and left.tone is Tone.BAD:
        steps = [f"To start the job: `{started_by(job.ref)}`.", *steps]
    return tuple(Line(one_line(step)) for step in dict.fromkeys(steps))


def _is_over(mine: Sequence[Recovery], incident: Incident) -> bool:
    """Whether a refused restart no longer matters: a recovery is under way, or a later one succeeded."""
    if not mine:
        return False
    last = mine[0]
    is_later = last.spec.detected_at > incident.spec.detected_at
    return last.active or (is_later and last.status.phase is Phase.SUCCEEDED)


def _nothing_to_do(recovery: Recovery, around: Around) -> Iterable[str]:
    """Yields the steps after a success. The node may still be out of service."""
    yield "You need not do anything for this job."
    for name in recovery.status.avoid_nodes:
        node = around.nodes.get(name)
        if node is not None and node.quarantine is not None:
            yield f"{name} is still out of service. To see what the node needs: `rekindle why node/{name}`."


def _commands(
    job: Job, mine: Sequence[Recovery], about: Sequence[Incident], around: Around
) -> tuple[Command, ...]:
    ref = job.ref
    commands: list[Command] = []
    if mine:
        name = mine[0].metadata.name
        commands.append(
            Command(
                f"kubectl describe recovery -n {ref.namespace} {name}", "to see the Recovery as an API object"
            )
        )
    nodes = dict.fromkeys(i.status.blamed_node for i in about if i.status.blamed_node)
    commands += [
        Command(f"rekindle why node/{n}", "to see why that node is the culprit") for n in list(nodes)[:2]
    ]
    ended = job.gang is not None and job.gang.terminal is not None and job.gang.terminal.succeeded
    if job.gang is not None and not ended and job.consent in (OptIn.OBSERVE, OptIn.DISABLED):
        commands += [Command(run, "to let Rekindle restart the job") for run in enabled_by(ref, job.gang)]
    if job.gang is not None and mine and mine[0].active:
        commands.append(Command(hold(ref), "to stop all actions of Rekindle on the job"))
    if job.gang is not None and not ended:
        commands.append(
            Command(f"rekindle doctor {name_of(ref)}", "to see what would not work at the next fault")
        )
    return (*commands, Command("rekindle status", "to see the whole cluster"))
