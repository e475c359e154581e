"""Runs the phase Waiting: a reset or a reboot begins only when nothing is in its way. Pure.

The checks have this order: a pause of Rekindle, people's holds, the brake, work on the node's driver, whether
the node takes no new pods, whether the node is silent, all pods on the node, a wait after the last repair,
the limits. Pods are never evicted. Gangs that have opted in to recovery are moved as a pending fault would
move them. The repair waits for all other pods until the deadline, and then a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted
from recover.api import Act, Blame, Cause, Outcome
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import StepKind
from recover.diagnose.awaited import Awaited
from recover.diagnose.diagnosis import AffectedGang
from recover.diagnose.due import arrived_at
from recover.model import Gang
from recover.policy.consent import hold_of_node
from recover.policy.driver_work import driver_work
from recover.repair.for_people import move_pods, then_release
from recover.repair.ladder import earlier_repairs, more_asked
from recover.repair.occupants import named, occupants, opted_in_gangs
from recover.repair.step_context import HELD_REQUEUE_S, Context, Reconciled, begun, handed_over, waiting
from recover.triage import quarantine, restarts
from recover.triage.guard import Denied
from recover.triage.restarts import Grounds

__all__ = ["in_the_way", "needs_person", "wait", "work_on_driver"]


_NOTHING_BEGINS = (Reason.PAUSED, Reason.HELD, Reason.FLEET_BRAKE, Reason.DRIVER_WORK)
"""Reasons for which the node is not closed to new pods either."""


class InTheWay(msgspec.Struct, frozen=True):
    """An obstacle: the reason why a reset or a reboot may not begin now."""

    reason: Reason
    message: str
    requeue_after_s: float | None = None


def wait(ctx: Context) -> Reconciled:
    ctx = msgspec.structs.replace(ctx, repair=more_asked(ctx.repair, ctx.found))
    rung = ctx.repair.rung
    if rung is None:
        return needs_person(ctx)
    obstacle = in_the_way(ctx, rung)
    if obstacle is not None and obstacle.reason in _NOTHING_BEGINS:
        return waiting(ctx, obstacle.reason, obstacle.message, obstacle.requeue_after_s)
    if not quarantine.takes_no_pods(ctx.node):
        return _closed(ctx)
    if obstacle is not None and obstacle.reason is Reason.NODE_SILENT:
        return _silent(ctx, obstacle)
    if obstacle is not None:
        return _occupied(ctx, rung, obstacle)
    pause = _pause(ctx)
    if pause is not None:
        left_s = (pause - ctx.now).total_seconds()
        message = (
            f"a repair has just returned {ctx.node.name} to service; the next repair begins at "
            f"{pause:%H:%M:%S} UTC"
        )
        return waiting(ctx, Reason.COOLING_DOWN, message, left_s)
    verdict = ctx.limits.may_begin(rung)
    if isinstance(verdict, Denied):
        return waiting(ctx, verdict.reason, verdict.message, HELD_REQUEUE_S)
    what = _words(ctx, rung)
    event = ctx.event(EventReason.NODE_REPAIR_STARTED, what)
    return Reconciled(repair=begun(ctx, rung, what), writes=(event,), begins=rung)


def _closed(ctx: Context) -> Reconciled:
    """Closes a degraded node, which takes pods until its repair is due. The close takes the node out of
    service as a quarantine does, so the same budgets apply: otherwise one line in the logs of all nodes could
    close the whole cluster."""
    verdict = ctx.guard.may_cordon_degraded(ctx.node, ctx.incident.metadata.name)
    if isinstance(verdict, Denied):
        return waiting(ctx, verdict.reason, verdict.message, HELD_REQUEUE_S)
    return Reconciled(writes=(quarantine.close(ctx.node),), takes_out=True)


def needs_person(ctx: Context) -> Reconciled:
    why = f"Neither a reset nor a reboot is known to repair this fault: {ctx.incident.status.summary}"
    return handed_over(ctx, Reason.NEEDS_PERSON, why, then_release(ctx.incident.fault, ctx.node))


def in_the_way(ctx: Context, rung: StepKind) -> InTheWay | None:
    """Returns why the step may not begin, or None. The check is made before the step is decided, and once
    more before it is begun."""
    if ctx.paused:
        return InTheWay(Reason.PAUSED, ctx.paused, HELD_REQUEUE_S)
    if why := hold_of_node(ctx.node, ctx.now):
        return InTheWay(Reason.HELD, why, HELD_REQUEUE_S)
    if ctx.guard.brakes:
        brake = ctx.guard.brakes[0]
        return InTheWay(Reason.FLEET_BRAKE, brake.words, max(0.01, (brake.until - ctx.now).total_seconds()))
    if (work := work_on_driver(ctx)) is not None:
        return work
    if not ctx.node.ready and not _works_on_silent(ctx, rung):
        message = f"{ctx.node.name} is NotReady, so no Job can run there"
        return InTheWay(Reason.NODE_SILENT, message)
    there = occupants(ctx.world, ctx.node, rung, ctx.settings.namespace)
    if there:
        message = f"the {rung} of {ctx.node.name} waits until these pods have ended: {named(there)}"
        return InTheWay(Reason.PODS_OF_OTHERS, message)
    return None


def work_on_driver(ctx: Context) -> InTheWay | None:
    """Returns that another controller works on the driver of the node, or None."""
    work = driver_work(ctx.node, ctx.now)
    if not work:
        return None
    until = work[0].until
    left_s = HELD_REQUEUE_S if until is None else (until - ctx.now).total_seconds()
    message = f"{work[0].what} is in progress on {ctx.node.name}, or has just ended ({work[0].label})"
    return InTheWay(Reason.DRIVER_WORK, message, left_s)


def _works_on_silent(ctx: Context, rung: StepKind) -> bool:
    """Whether a system outside the cluster can do this step on a node that no longer answers."""
    return rung is StepKind.REBOOT and ctx.reboots_from_outside


def _silent(ctx: Context, obstacle: InTheWay) -> Reconciled:
    """Returns what is done with a silent node. It may report again at any moment. The reset of a node that
    stays silent is skipped."""
    since = ctx.node.ready_since or ctx.now
    until = since + timedelta(seconds=ctx.rules.not_ready_s)
    if ctx.now < until:
        return waiting(ctx, obstacle.reason, obstacle.message, (until - ctx.now).total_seconds())
    if ctx.repair.rung is StepKind.RESET and _works_on_silent(ctx, StepKind.REBOOT):
        return Reconciled(repair=msgspec.structs.replace(ctx.repair, rung=StepKind.REBOOT))
    return handed_over(ctx, obstacle.reason, obstacle.message, then_release(Fault.HOST, ctx.node))


def _occupied(ctx: Context, rung: StepKind, obstacle: InTheWay) -> Reconciled:
    if ctx.expired():
        hours = ctx.rules.wait_for_others_s / 3600
        return handed_over(
            ctx,
            obstacle.reason,
            f"After {hours:g} h there are still pods on {ctx.node.name}, and Rekindle does not "
            f"evict them: {obstacle.message}",
            move_pods(rung, ctx.node),
        )
    leaving = _leaving(ctx, rung)
    due = (one.due for one in leaving if one.due is not None)
    waits = [ctx.left_s(), *((moment - ctx.now).total_seconds() for moment in due if moment > ctx.now)]
    look = waiting(ctx, obstacle.reason, obstacle.message, min(w for w in waits if w is not None))
    return _moved(ctx, rung, leaving, look)


def _moved(ctx: Context, rung: StepKind, leaving: Sequence[AffectedGang], look: Reconciled) -> Reconciled:
    """Adds the Recoveries of the gangs that leave the node. If a gang is not moved, the reason has a separate
    record: triage records why that gang is not restarted for the fault itself, and may have a different
    reason. A gang that is being restarted already, for example for another node, leaves this node anyway."""
    grounds = _grounds(ctx, rung, _began(ctx))
    still = (
        one
        for one in leaving
        if one.gang.ref.uid not in ctx.guard.restarted and ctx.world.active_recovery(one.gang.ref.uid) is None
    )
    wishes = [restarts.wanted(ctx.world, grounds, one, ctx.now) for one in still]
    records, allowed = restarts.decided(ctx.world, wishes, ctx.guard, ctx.now)
    return msgspec.structs.replace(
        look,
        independent=tuple(restarts.writes(ctx.world, allowed, ctx.now)),
        records=tuple(
            r if r.outcome is Outcome.DONE else msgspec.structs.replace(r, action=Act.MOVE_GANG)
            for r in records
        ),
        restarts=tuple(one.gang for one in allowed),
    )


def _leaving(ctx: Context, rung: StepKind) -> list[AffectedGang]:
    """Returns the opted-in gangs on the node, each with the time at which it leaves: at its next checkpoint,
    and when its grace period is over at the latest."""
    gangs = opted_in_gangs(ctx.world, ctx.node, rung, ctx.settings.namespace)
    return [_leaves(ctx, gang, ctx.saves.of(gang, ctx.incident.metadata.name)) for gang in gangs]


def _leaves(ctx: Context, gang: Gang, awaited: Awaited) -> AffectedGang:
    """Returns the gang with the time at which it leaves the node. The grace period begins with the repair, or
    when the gang comes to the node, whichever is later: a gang that a restart has just brought here has no
    checkpoint yet."""
    began = _began(ctx)
    came = arrived_at(ctx.world, ctx.node, gang) or began
    due = max(began, came) + timedelta(seconds=ctx.settings.timing.checkpoint_grace_s)
    is_saved = awaited is Awaited.SAVED
    return AffectedGang(gang=gang, due=ctx.now if is_saved else due, dead=False, awaited=awaited)


def _began(ctx: Context) -> datetime:
    """Returns when the repair began to wait."""
    return ctx.repair.phases[-1].at


def _grounds(ctx: Context, rung: StepKind, began: datetime) -> Grounds:
    incident, node = ctx.incident, ctx.node.name
    cause = fitted(
        Cause,
        incident=incident.metadata.name,
        fault=incident.fault,
        attempt=1,
        at=incident.spec.detected_at,
        node=node,
        summary=f"Rekindle will repair {node} ({rung}): {incident.status.summary}",
        blame=Blame.NODE,
    )
    return Grounds(cause, detected_at=incident.spec.detected_at, seen_at=began, off=node)


def _pause(ctx: Context) -> datetime | None:
    """Returns until when a node that has just returned from a repair is left alone, or None if it is not."""
    limits = ctx.rules
    earlier = earlier_repairs(ctx.world, ctx.node.name, limits.repairs_window_s, ctx.now)
    if not earlier or earlier[-1].status.repair is None:
        return None
    until = earlier[-1].status.repair.phases[-1].at + timedelta(seconds=limits.cool_down_s)
    return until if until > ctx.now else None


def _words(ctx: Context, rung: StepKind) -> str:
    name, devices = ctx.node.name, ctx.repair.devices
    if rung is StepKind.REBOOT:
        return f"{name} is being rebooted; a new boot id will prove the reboot"
    which = f"device {named(devices)}" if devices else "all devices"
    return f"{which} of {name} {'are' if len(devices) != 1 else 'is'} being reset"
