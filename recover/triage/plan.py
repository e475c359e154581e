"""Turns the World into a plan: what to write now about nodes, Incidents and new Recoveries, and why not more.
Pure.

First each fault is considered alone: what should be done about its node and its gangs (wishes.py). Then
decisions.py checks the wishes of all faults together against budgets, brakes, modes and holds. The actions
follow, and the Incidents that explain the actions.

The node's patch, each gang's Recovery and the Incident that explains them are written independently: if the
API server refuses one of them, the others are still written, and the Incident says that the write was
refused. Each write is a no-op if it has happened already, so a crash between two writes, or a second
reconcile, changes nothing. The package recovery/ takes the steps of a running Recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from recover.api import Incident, IncidentPhase, Outcome
from recover.diagnose.caught import about_diagnosis, each, undecided
from recover.diagnose.failing_starts import comes_due as comes_late
from recover.diagnose.failing_starts import failing_starts
from recover.diagnose.gang_faults import GangState
from recover.diagnose.node_faults import comes_due
from recover.diagnose.set_aside import counts_again
from recover.diagnose.signals import becomes_findings
from recover.diagnose.whole import Judged, diagnose
from recover.model import Subjects, World
from recover.model.actions import Action, Plan
from recover.policy.settings import Settings
from recover.triage import incidents, quarantine, remade, restarts
from recover.triage.absent import unconfirmed
from recover.triage.advice import advise
from recover.triage.brake import Brake
from recover.triage.decisions import decide
from recover.triage.guard import Guard
from recover.triage.held_back_incidents import gathered, held_back
from recover.triage.left_behind import left_behind
from recover.triage.start_incidents import closes_at, start_incidents, still_open
from recover.triage.wishes import wish_for

__all__ = ["plan"]


def plan(world: World, settings: Settings, now: datetime) -> Plan:
    """Returns everything that triage wants to write now, and when to decide again if nothing changes
    before."""
    subjects = world.subjects
    judged = diagnose(world, subjects, settings, now)
    starts = failing_starts(world, now)
    advice, unread = advise(world, subjects.health, now)

    # First what should be done about each fault, and then, once for all faults, which of it is allowed.
    lost = remade.nodes_without_incident(
        world, subjects.nodes.values(), {one.name for one in judged.found}, now
    )
    wishes, unjudged = each(
        judged.found, lambda one: about_diagnosis(world, one), lambda one: wish_for(world, one, lost, now)
    )
    guard = Guard.of(world, judged.found, settings, now)
    decisions, unasked = decide(world, wishes, guard, now)

    # The actions, and the Incidents that explain them.
    found = gathered(world, decisions, judged.proved, guard.brakes, settings.budgets)
    explained, unexplained = each(
        found.alone,
        lambda one: about_diagnosis(world, one.diagnosis),
        lambda one: tuple(incidents.explain(world, one.diagnosis, one.records)),
    )
    failures = (*judged.failures, *unread, *unjudged, *unasked, *unexplained)
    live = {one.name for one in judged.found} | {one.name for one in advice} | judged.proved.keys()
    live |= undecided(world, failures) | _suspicious(world, judged.states) | still_open(world, starts, now)
    chains = [
        *_alone(unconfirmed(world)),
        *quarantine.releases(world, subjects.nodes.values(), now),
        *(decision.writes for decision in decisions),
        *restarts.writes(world, (restart for one in decisions for restart in one.restarts), now),
        *explained,
        *_alone(held_back(world, found, guard.brakes, failures, now)),
        *_alone(incidents.superseded(world, judged.proved, now)),
        *_alone(incidents.of_recoveries(world, judged.found, now)),
        *_alone(start_incidents(world, starts, now)),
        *incidents.advised(world, advice, now),
        *left_behind(world, subjects.gangs.values(), now),
        *remade.remade(lost, live, now),
        *_alone(incidents.closings(world, live, judged.found, now)),
    ]
    requeue_after_s = _requeue_after_s(world, subjects, judged, guard.brakes, settings, now)
    return Plan(tuple(chain for chain in chains if chain), requeue_after_s, failures)


def _alone(actions: Iterable[Action]) -> Iterator[tuple[Action, ...]]:
    """Yields each action as a separate chain."""
    return ((action,) for action in actions)


def _suspicious(world: World, states: Mapping[str, GangState]) -> set[str]:
    """Returns the Incidents of gangs that may have failed once more, which only time can tell. If such a gang
    has failed, the failure joins its Incident."""
    uids = {uid for uid, state in states.items() if state.suspicious}
    about = ((name, incident.spec.gang) for name, incident in world.incidents.items() if uids)
    return {name for name, gang in about if gang is not None and gang.uid in uids}


# --- time -------------------------------------------------------------------------------------------------


def _requeue_after_s(
    world: World,
    subjects: Subjects,
    judged: Judged,
    brakes: Iterable[Brake],
    settings: Settings,
    now: datetime,
) -> float | None:
    """Returns the seconds until time alone may change a decision."""
    found, states = judged.found, judged.states.values()
    moments = [d.settles_at for d in found if d.settles_at is not None and d.settles_at > now]
    moments += [h.due for d in found for h in d.affected if h.due is not None and h.due > now]
    moments += [brake.until for brake in brakes]
    moments += [moment for moment in comes_due(subjects.health.values(), now) if moment > now]
    moments += [moment for moment in counts_again(world, now) if moment > now]
    moments += [moment for moment in becomes_findings(world) if moment > now]
    moments += [moment for moment in (*comes_late(world), *closes_at(world)) if moment > now]
    first_steps = (state.first_step_due for state in states)
    moments += [due for due in first_steps if due is not None and due > now]
    waits = [(moment - now).total_seconds() for moment in moments]
    if any(state.suspicious for state in states):
        waits.append(min(settings.timing.in_place_grace_s, settings.timing.deleted_settle_s) / 2)
    waits += [left_s for refusal in world.refused.values() if (left_s := refusal.left_s(now))]
    if any(map(_is_refused, world.incidents.values())):
        waits.append(60.0)
    return max(0.01, min(waits)) if waits else None


def _is_refused(incident: Incident) -> bool:
    """Whether an action of the Incident was refused that a limit may allow later."""
    status = incident.status
    is_held_back = status.phase is IncidentPhase.OPEN and bool(status.members)
    return is_held_back or any(record.outcome is Outcome.REFUSED for record in status.actions)
