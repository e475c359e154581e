"""Nodes that Kubernetes no longer hears of: no quarantine comes before their repair, so it begins here. Pure.

A kubelet that restarts is silent for a moment. Only after `repair.not_ready_s` is the node taken out, within
the same budgets as any quarantine, so that no pod lands on it between its reboot and its validation.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted
from recover.api import Act, ActionRecord, Outcome
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import RepairPhase
from recover.policy.faults import QuarantineLevel
from recover.repair.for_people import then_release
from recover.repair.step_context import HELD_REQUEUE_S, Context, Reconciled, handed_over, moved, waiting
from recover.triage import quarantine
from recover.triage.guard import Denied

__all__ = ["before_quarantine", "is_its_turn", "is_watched"]


def is_its_turn(ctx: Context) -> bool:
    """A quarantined node, or one that is silent."""
    taken = ctx.node.quarantine
    if taken is not None:
        return taken.incident == ctx.incident.metadata.name and not quarantine.is_released(ctx.node)
    return ctx.incident.spec.fault is Fault.HOST and not ctx.node.ready


def is_watched(ctx: Context) -> bool:
    """Silent, and not taken out yet: there is no quarantine that a person could release."""
    return (
        ctx.incident.spec.fault is Fault.HOST
        and ctx.node.quarantine is None
        and ctx.repair.phase is RepairPhase.WAITING
        and not _was_released(ctx)
    )


def _was_released(ctx: Context) -> bool:
    """By a person, since the repair began: it was taken out for it, and is not once more."""
    began, released = ctx.repair.began_at, ctx.node.released_at
    return began is not None and released is not None and released > began


def before_quarantine(ctx: Context) -> Reconciled | None:
    """None once the node is quarantined, or was when its repair began."""
    if not is_watched(ctx):
        return None
    name = ctx.node.name
    if ctx.node.ready:
        message = f"{name} became Ready again before Rekindle acted on the node"
        return Reconciled(repair=moved(ctx, RepairPhase.RETURNED, message))
    until = _begin(ctx) + timedelta(seconds=ctx.rules.not_ready_s)
    message = (
        f"{name} is NotReady; Rekindle waits until {until:%H:%M:%S} UTC for the node to become Ready again"
    )
    if ctx.now < until:
        return waiting(ctx, Reason.NODE_SILENT, message, (until - ctx.now).total_seconds())
    if not ctx.reboots_from_outside:
        why = (
            f"{name} is NotReady, so no Job can run there, and neither repair.webhook nor "
            "repair.maintenance is set"
        )
        return handed_over(ctx, Reason.NODE_SILENT, why, then_release(Fault.HOST, ctx.node))
    return _take_out(ctx)


def _begin(ctx: Context) -> datetime:
    """Of the silence, or of what is left of it after a release, which has answered all that was before."""
    known = [at for at in (ctx.node.ready_since, ctx.node.released_at) if at is not None]
    return max(known, default=ctx.now)


def _take_out(ctx: Context) -> Reconciled:
    incident, level = ctx.incident.metadata.name, QuarantineLevel.CORDON
    verdict = ctx.guard.may_quarantine(ctx.node, incident, ctx.now, level)
    if isinstance(verdict, Denied):
        return waiting(ctx, verdict.reason, verdict.message, HELD_REQUEUE_S)
    words = quarantine.words(level, Fault.HOST)
    record = fitted(
        ActionRecord,
        at=ctx.now,
        action=Act.QUARANTINE_NODE,
        target=ctx.node.name,
        outcome=Outcome.DONE,
        message=words,
    )
    event = ctx.event(
        EventReason.NODE_QUARANTINED,
        quarantine.announced(ctx.node.name, words, ctx.incident.status.summary),
        warning=True,
    )
    patch = quarantine.quarantine(ctx.node, incident, Fault.HOST, level, ctx.now)
    return Reconciled(writes=(patch, event), records=(record,), takes_out=True)
