"""Begins the repair of nodes that no longer report to Kubernetes. No quarantine comes before such a repair.
Pure.

A kubelet that restarts is silent for a moment. Only after `repair.not_ready_s` does Rekindle take the node
out of service, within the same budgets as any quarantine, so that no pod starts on the node between its
reboot and its validation.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted
from recover.api import Act, ActionRecord, Outcome
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import RepairPhase
from recover.diagnose.released import is_released
from recover.policy.faults import QuarantineLevel
from recover.repair.for_people import then_release
from recover.repair.step_context import HELD_REQUEUE_S, Context, Reconciled, handed_over, moved, waiting
from recover.triage import quarantine
from recover.triage.guard import Denied

__all__ = ["awaits_quarantine", "before_quarantine", "is_its_turn"]


def is_its_turn(ctx: Context) -> bool:
    """Whether the node of the Incident may be repaired: it is in quarantine for this Incident, or silent."""
    taken = ctx.node.quarantine
    if taken is not None:
        return taken.incident == ctx.incident.metadata.name and not is_released(ctx.node)
    return ctx.incident.spec.fault is Fault.HOST and not ctx.node.ready


def awaits_quarantine(ctx: Context) -> bool:
    """Whether the repair is for a silent node that is not in quarantine yet. There is then no quarantine that
    a person could end. The node may have become Ready again in the meantime."""
    return (
        ctx.incident.spec.fault is Fault.HOST
        and ctx.node.quarantine is None
        and ctx.repair.phase is RepairPhase.WAITING
        and not _was_released(ctx)
    )


def _was_released(ctx: Context) -> bool:
    """Whether a person has returned the node to service since the repair began: the repair had taken the node
    out of service, and does not take it out once more."""
    began, released = ctx.repair.began_at, ctx.node.released_at
    return began is not None and released is not None and released > began


def before_quarantine(ctx: Context) -> Reconciled | None:
    """Returns what is done before the quarantine, or None once the node is in quarantine, or if it was when
    its repair began."""
    if not awaits_quarantine(ctx):
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
    """Returns when the silence began, or when the quarantine last ended if that was later: its end has
    answered everything before."""
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
