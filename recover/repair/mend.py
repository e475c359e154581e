"""Decides what to write now about nodes under repair, and records what forbids more. Pure; runs in a
DecisionLoop of its own.

A repair begins with the Incident of a quarantined node, or of a silent node (silent.py), in mode repair, and
only for faults that were seen since that mode was enabled for the node. The state of the repair is
`Incident.status.repair`; every write of the state carries the version that was seen. The state is written
first, then the action, so a controller that starts again knows what may have been done.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

import msgspec

from detectors.wire.contract import Fault, Origin
from detectors.wire.fitting import fitted, refitted
from recover.api import Act, ActionRecord, Incident, IncidentPhase, IncidentStatus, Outcome
from recover.api.marks import REPAIR_OF
from recover.api.reasons import Reason
from recover.api.repair_state import Repair, RepairPhase, RepairPhaseTime, StepOutcome
from recover.diagnose.answered import known_of
from recover.diagnose.awaited import Awaiting
from recover.diagnose.goes_on import shown_at
from recover.diagnose.released import is_released
from recover.k8s.kinds import INCIDENTS
from recover.model import World
from recover.model.actions import Action, Plan
from recover.model.modes import Mode
from recover.policy.consent import hold_of_node, in_force_on
from recover.policy.settings import Settings
from recover.repair import outside, silent, step_jobs
from recover.repair.device_count import devices_expected
from recover.repair.for_people import then_release
from recover.repair.ladder import (
    broken_devices,
    earlier_repairs,
    first_rung,
)
from recover.repair.limits import Limits
from recover.repair.outside import Means
from recover.repair.step_context import HELD_REQUEUE_S, Context, Reconciled, handed_over
from recover.repair.waiting import needs_person, wait
from recover.repair.working import is_begun, work
from recover.triage import quarantine
from recover.triage.guard import Guard
from recover.triage.incidents import merged_records, update

__all__ = ["repair"]


def repair(world: World, settings: Settings, means: Means, now: datetime) -> Plan:
    """Returns everything that repairs want to write now, and when to decide again if nothing changes
    before."""
    chains: list[tuple[Action, ...]] = [(removal,) for removal in _leftovers(world)]
    waits: list[float] = []
    concerned = _concerned(world)
    if not concerned:
        return Plan(chains=tuple(chains))
    guard, limits = Guard.of(world, (), settings, now), Limits.of(world, settings.repair, now)
    saves = Awaiting(world)
    for incident in concerned:
        node = world.nodes.get(incident.spec.node)
        if node is None:
            if world.has_no_node(incident.spec.node):
                chains.append(tuple(_without_node(incident, means, now)))
            continue
        ctx = Context(
            incident=incident,
            repair=incident.status.repair or Repair(),
            node=node,
            mode=in_force_on(world, node, heeds_pause=False),
            world=world,
            settings=settings,
            means=means,
            limits=limits,
            guard=guard,
            saves=saves,
            now=now,
        )
        look = _look(ctx)
        if look.takes_out:
            guard = guard.after(node.name, incident.metadata.name)
        if look.begins is not None:
            limits = limits.after(look.begins, node.name)
        for gang in look.restarts:
            guard = guard.after_restart(gang)
        chains += [*look.independent, (*look.writes, *_written(ctx, look))]
        if look.requeue_after_s is not None:
            waits.append(look.requeue_after_s)
    return Plan(chains=tuple(chain for chain in chains if chain), requeue_after_s=min(waits, default=None))


def _concerned(world: World) -> list[Incident]:
    """Returns the Incidents whose node is in quarantine, under repair, or silent, the oldest fault first."""
    found: dict[str, Incident] = {}
    for node in world.subjects.nodes.values():
        if node.quarantine is not None and node.quarantine.incident in world.incidents:
            found[node.quarantine.incident] = world.incidents[node.quarantine.incident]
    for name, incident in world.incidents.items():
        repair = incident.status.repair
        is_active = repair is not None and repair.active
        is_silent = incident.spec.fault is Fault.HOST and incident.status.phase is IncidentPhase.OPEN
        if incident.spec.node and (is_active or (is_silent and repair is None)):
            found[name] = incident
    return sorted(found.values(), key=lambda i: (i.spec.detected_at, i.metadata.name))


def _look(ctx: Context) -> Reconciled:
    if ctx.incident.status.repair is None:
        return _begin(ctx)
    match ctx.repair.phase:
        case RepairPhase.HANDED_OVER:
            return Reconciled()
        case RepairPhase.RETURNED:
            return _give_back(ctx)
        case RepairPhase.WAITING:
            return _stepped_in(ctx) or silent.before_quarantine(ctx) or wait(ctx)
        case RepairPhase.RESETTING | RepairPhase.REBOOTING | RepairPhase.VALIDATING:
            return _stepped_in(ctx) or work(ctx)


def _written(ctx: Context, look: Reconciled) -> Iterator[Action]:
    """Yields the write of the Incident as the reconcile leaves it, if anything in it changes; before it, the
    deletion of a maintenance object that is no longer needed."""
    status = ctx.incident.status
    asked = outside.take_back(ctx.repair, look.repair, ctx.means) if look.repair is not None else None
    if asked is not None:
        yield asked
    # Once the repair has begun, earlier reasons not to begin it no longer count.
    before = [a for a in status.actions if look.repair is None or a.action != Act.REPAIR_NODE]
    changed = refitted(
        status,
        repair=look.repair or status.repair,
        actions=merged_records(before, list(look.records)),
        cordoned_at=status.cordoned_at or _cordoned_at(look),
        phase=IncidentPhase.CLOSED if look.closes else status.phase,
        closed_at=ctx.now if look.closes else status.closed_at,
        answered=known_of(ctx.node, ctx.health) if look.closes else status.answered,
    )
    yield from _update(ctx.incident, changed)


def _cordoned_at(look: Reconciled) -> datetime | None:
    """Returns when this reconcile of the repair took the node out of service; None if it did not. Most nodes
    are out of service before their repair begins; a silent node, for example, is not."""
    return next(
        (r.at for r in look.records if (r.action, r.outcome) == (Act.QUARANTINE_NODE, Outcome.DONE)), None
    )


def _update(incident: Incident, status: IncidentStatus) -> Iterator[Action]:
    what = status.repair.phase.lower() if status.repair is not None else "refused"
    return update(incident, status, f"repair-{what}")


# --- begin and end ----------------------------------------------------------------------------------------


def _begin(ctx: Context) -> Reconciled:
    """Begins a repair, only in mode repair, and only for faults that were seen since that mode was enabled.
    Otherwise the Incident says why no repair begins."""
    if ctx.incident.status.phase is not IncidentPhase.OPEN or not silent.is_its_turn(ctx):
        return Reconciled()
    since = ctx.mode.began(Mode.REPAIR)
    if since is None:
        return Reconciled(records=_not_in_mode(ctx))
    if ctx.paused:
        message = f"would repair {ctx.node.name} ({ctx.paused})"
        return Reconciled(records=(_refused(ctx, Reason.PAUSED, message, would=True),))
    if (last := _last_seen(ctx)) < since:
        message = (
            f"Rekindle saw the fault at {last:%Y-%m-%d %H:%M:%S} UTC, before mode repair was "
            f"enabled{ctx.mode.because}"
        )
        return Reconciled(records=(_refused(ctx, Reason.STALE_EVIDENCE, message),))
    limits = ctx.settings.repair
    earlier = earlier_repairs(ctx.world, ctx.node.name, limits.repairs_window_s, ctx.now)
    rung = first_rung(ctx.incident, ctx.found, again=bool(earlier))
    begun = fitted(
        Repair,
        rung=rung,
        devices=broken_devices(ctx.found),
        devices_expected=devices_expected(ctx.node, ctx.health),
        message=f"Rekindle will repair {ctx.node.name}",
        phases=[RepairPhaseTime(phase=RepairPhase.WAITING, at=ctx.now)],
        deadline=ctx.now + timedelta(seconds=limits.wait_for_others_s),
    )
    ctx = msgspec.structs.replace(ctx, repair=begun)
    if len(earlier) >= limits.repairs_per_node_max:
        days = limits.repairs_window_s / 86400
        why = f"{ctx.node.name} was repaired {len(earlier)} times in {days:g} days and has failed again"
        return handed_over(ctx, Reason.KEEPS_FAILING, why, then_release(ctx.incident.fault, ctx.node))
    return needs_person(ctx) if rung is None else Reconciled(repair=begun)


def _last_seen(ctx: Context) -> datetime:
    """Returns when the node last showed the fault: later findings join the open Incident, and a fault that
    continues is evidence, too."""
    seen = [e.at for e in ctx.incident.status.evidence if e.origin is not Origin.TENANT]
    went_on = [shown_at(finding) for finding in ctx.found]
    return max([ctx.incident.spec.detected_at, *seen, *(at for at in went_on if at <= ctx.now)])


def _not_in_mode(ctx: Context) -> tuple[ActionRecord, ...]:
    """Returns the record that the node is not in mode repair. If the whole cluster is in a lower mode, nobody
    expects a repair, and there is no record."""
    if ctx.world.modes.cluster.mode is not Mode.REPAIR:
        return ()
    return (
        _refused(
            ctx, Reason.NOT_IN_REPAIR_MODE, f"would repair {ctx.node.name}{ctx.mode.because}", would=True
        ),
    )


def _refused(ctx: Context, reason: Reason, message: str, *, would: bool = False) -> ActionRecord:
    return fitted(
        ActionRecord,
        at=ctx.now,
        action=Act.REPAIR_NODE,
        target=ctx.node.name,
        outcome=Outcome.WOULD if would else Outcome.REFUSED,
        reason=reason,
        message=message,
    )


def _stepped_in(ctx: Context) -> Reconciled | None:
    """Ends a repair that people have overruled, at any time: the end of the quarantine by a person ends the
    repair, and so does a lower mode once no step is under way."""
    name, step = ctx.node.name, ctx.repair.step
    taken = ctx.node.quarantine
    is_ours = taken is not None and taken.incident == ctx.incident.metadata.name
    if taken is not None and not is_ours:
        why = f"{name} is in quarantine for another Incident now: {taken.incident}"
        return handed_over(ctx, Reason.NEEDS_PERSON, why, "That Incident says what to do")
    if taken is None and _joined_again(ctx):
        return handed_over(
            ctx,
            Reason.NODE_GONE,
            f"Somebody deleted the Node {name} during its repair, and the node has joined the cluster again",
            "If the fault is still present, Rekindle quarantines the node again, with a new Incident",
        )
    if taken is None and quarantine.is_tainted(ctx.node):
        return _noted_again(ctx)
    if not silent.awaits_quarantine(ctx) and (not is_ours or is_released(ctx.node)):
        return handed_over(
            ctx,
            Reason.RELEASED_BY_PERSON,
            f"A person ended the quarantine of {name} during its repair",
            "Rekindle takes no further action on the node for this Incident",
        )
    if ctx.mode.mode < Mode.REPAIR and (step is None or not is_begun(ctx, step)):
        return handed_over(
            ctx,
            Reason.NOT_IN_REPAIR_MODE,
            f"The mode was lowered to {ctx.mode.mode}{ctx.mode.because} after the repair of {name} began",
            then_release(ctx.incident.fault, ctx.node),
        )
    return None


def _noted_again(ctx: Context) -> Reconciled:
    """Writes the note of the quarantine again, if somebody has removed only the note: our taint still keeps
    pods off the node, and only the note says how to end the quarantine."""
    if hold_of_node(ctx.node, ctx.now) or ctx.paused:
        return Reconciled(requeue_after_s=HELD_REQUEUE_S)
    at, incident = ctx.incident.status.cordoned_at or ctx.now, ctx.incident
    return Reconciled(writes=(quarantine.noted_again(ctx.node, incident.metadata.name, incident.fault, at),))


def _joined_again(ctx: Context) -> bool:
    """Whether the Node was created after the beginning of the repair. A person who removes the note of the
    quarantine deletes no Node, and wants the node in service."""
    began, created = ctx.repair.began_at, ctx.node.created
    return began is not None and created is not None and created > began


def _give_back(ctx: Context) -> Reconciled:
    """Returns the node to service. This is not disruptive, so neither the brake nor limits delay it; a hold
    and a pause do."""
    taken = ctx.node.quarantine
    if taken is None or taken.incident != ctx.incident.metadata.name:
        return Reconciled()
    if hold_of_node(ctx.node, ctx.now) or ctx.paused:
        return Reconciled(requeue_after_s=HELD_REQUEUE_S)
    message = f"{ctx.repair.message}. Incident {ctx.incident.metadata.name}"
    return Reconciled(
        writes=quarantine.give_back(ctx.node, message, ctx.repair.phases[-1].at, ctx.incident.status.answered)
    )


def _without_node(incident: Incident, means: Means, now: datetime) -> Iterator[Action]:
    """Ends the repair of a node whose Node object is gone, and with it everything that Rekindle wrote
    there."""
    repair = incident.status.repair
    if repair is None or not repair.active:
        return
    withdrawn = partial(msgspec.structs.replace, ended_at=now, outcome=StepOutcome.WITHDRAWN)
    ended = refitted(
        repair,
        phase=RepairPhase.HANDED_OVER,
        reason=str(Reason.NODE_GONE),
        message=f"Somebody deleted the Node {incident.spec.node} during its repair. Rekindle takes no "
        "further action",
        deadline=None,
        phases=[*repair.phases, RepairPhaseTime(phase=RepairPhase.HANDED_OVER, at=now)],
        steps=[withdrawn(step) if step.outcome is None else step for step in repair.steps],
    )
    asked = outside.take_back(repair, ended, means)
    if asked is not None:
        yield asked
    yield from _update(incident, msgspec.structs.replace(incident.status, repair=ended))


def _leftovers(world: World) -> Iterator[Action]:
    """Yields the removals of Jobs that still run for a step that is over, so that they never act late. Ended
    Jobs stay for a while because of their logs, and Jobs of an Incident that cannot be read stay until it
    can."""
    under_way = {
        repair.step.job
        for incident in world.incidents.values()
        if (repair := incident.status.repair) is not None and repair.active and repair.step is not None
    }
    unread = {step_jobs.label_of(name) for name in world.unread.get(INCIDENTS, ())}
    for name, job in world.repair_jobs.items():
        is_kept = name in under_way or job.labels.get(REPAIR_OF) in unread
        if job.terminal is None and not job.deleting and not is_kept:
            yield step_jobs.remove(job)
