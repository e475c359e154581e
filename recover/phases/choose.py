"""Choosing: the newest complete checkpoint, once nothing of the old attempt can write any more. Pure."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePosixPath

import msgspec

from detectors.contract import Fault
from recover import scan_pod
from recover.accounting import last_step
from recover.actions import Action
from recover.api import (
    CheckpointChoice,
    FailedLog,
    Phase,
    RecoveryStatus,
    RejectedCheckpoint,
)
from recover.checkpoints.model import Checkpoint, ScanMessage, decode_message
from recover.consent import ON_TERMINAL
from recover.diagnose.nodes import node_faults
from recover.diagnose.ranks import leftover
from recover.guard import attempts_limit, attempts_without_progress, reached
from recover.model import Pod
from recover.phases.context import Context, Step, condition, moved
from recover.phases.recreate import delay_s, obstacle, will_be_made_anew
from recover.reasons import EventReason, Reason

__all__ = ["choosing"]

_FASTER = f"With {ON_TERMINAL}: recreate on the job it would be made anew instead"
STEP_END = 2**53
"""Larger numbers are not exact everywhere in JSON, and no training counts so far."""


def choosing(ctx: Context) -> Step:
    try:
        place = scan_pod.location(ctx.gang)
    except scan_pod.Unscannable as why:
        return _decided(ctx, _unverified(ctx, str(why)))
    scan = ctx.world.scans.get(f"{ctx.gang.ref.namespace}/{scan_pod.scan_name(ctx.recovery)}")
    if scan is not None and scan.ended:
        return _decided(ctx, _choice(ctx, scan, place.at.path))
    if ctx.expired():
        return _decided(ctx, _unverified(ctx, _too_late(ctx, scan)))
    return Step(writes=_running(ctx, scan), look_again_s=_left(ctx))


def _running(ctx: Context, scan: Pod | None) -> tuple[Action, ...]:
    """Creates the scan where it is missing, and lifts its gate."""
    if scan is None:
        created = scan_pod.create(
            ctx.recovery, ctx.gang, ctx.settings.images.scan, ctx.timing.scan_deadline_s
        )
        return (created,) if created else ()
    return (scan_pod.release(scan),) if scan.gated else ()


def _left(ctx: Context) -> float:
    assert ctx.status.deadline is not None, "Choosing has a deadline"
    return max(0.01, (ctx.status.deadline - ctx.now).total_seconds())


# --- what the scan said -----------------------------------------------------------------------------------


def _choice(ctx: Context, scan: Pod, root: str) -> CheckpointChoice:
    text = next((c.message for c in scan.containers if c.message), "")
    try:
        message = decode_message(text)
    except ValueError as error:
        return _unverified(ctx, str(error))
    if message.error:
        return _unverified(ctx, message.error)
    rejected = [
        RejectedCheckpoint(step=c.step, path=c.path[:512], reason=c.reason[:256])
        for c in message.rejected[:8]
        if 0 <= c.step < STEP_END
    ]
    if message.chosen is None:
        why = _none_complete(message)
        return msgspec.structs.replace(_unverified(ctx, why), rejected=rejected)
    path = str(PurePosixPath(root) / message.chosen.path)
    unusable = _unusable(message.chosen, path)
    if unusable:
        return msgspec.structs.replace(_unverified(ctx, unusable), rejected=rejected)
    return CheckpointChoice(
        attempt=ctx.status.attempt,
        verified=True,
        step=message.chosen.step,
        path=path,
        format=message.chosen.format,
        rejected=rejected,
        scan_s=_scan_s(ctx),
    )


def _unusable(chosen: Checkpoint, path: str) -> str:
    """Why the scan's choice is none: the pod lies in the tenant's namespace and may say anything."""
    if not 0 <= chosen.step < STEP_END:
        return f"the scan chose step {chosen.step}, which is not a step"
    parts = PurePosixPath(chosen.path).parts
    if chosen.path.startswith("/") or ".." in parts or len(path) > 512 or len(chosen.format) > 63:
        return f"the scan chose {chosen.path[:80]!a}, which is not a path under the annotation's"
    return ""


def _scan_s(ctx: Context) -> float | None:
    entered = next((t.at for t in reversed(ctx.status.phases) if t.phase is Phase.CHOOSING), None)
    return round((ctx.now - entered).total_seconds(), 3) if entered else None


def _none_complete(message: ScanMessage) -> str:
    if message.found:
        return f"none of the {message.found} checkpoints is complete"
    return "there is no checkpoint yet"


def _unverified(ctx: Context, why: str) -> CheckpointChoice:
    return CheckpointChoice(attempt=ctx.status.attempt, verified=False, reason=why[:256])


def _too_late(ctx: Context, scan: Pod | None) -> str:
    took = f"the scan did not end within {ctx.timing.scan_deadline_s:g} s"
    if scan is None:
        return f"{took}: its pod was refused or never seen"
    return f"{took}: {scan.unschedulable or f'its pod is {scan.phase}'}"


# --- on to the resume -------------------------------------------------------------------------------------


def _decided(ctx: Context, choice: CheckpointChoice) -> Step:
    """Holds the resume back while a verdict about one of the gang's nodes is still open, and ends a loop."""
    open_until = _verdict_open(ctx)
    if open_until is not None:
        return Step(look_again_s=open_until)
    history = ctx.world.history(ctx.gang.ref.uid)
    since = ctx.now - timedelta(seconds=ctx.timing.recovery_window_s)
    status = _with_choice(ctx, choice)
    attempts = attempts_without_progress(history, ctx.recovery, reached(status), since)
    limit = attempts_limit(ctx.gang, ctx.settings.budgets)
    if attempts > limit:
        message = (
            f"{attempts - 1} restarts for {ctx.spec.fault} without a step of progress, the limit is {limit}: "
            f"{ctx.gang.ref} stays suspended"
        )
        return Step(
            status=moved(ctx, Phase.ESCALATED, message, reason=Reason.CRASH_LOOP, status=status),
            writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
        )
    where = (
        f"checkpoint {choice.path} (step {choice.step})" if choice.verified else "the framework's own choice"
    )
    avoiding = f", away from {', '.join(status.avoid_nodes)}" if status.avoid_nodes else ""
    waits_s = 0.0 if will_be_made_anew(ctx) else delay_s(ctx)
    delay = f"; {obstacle(ctx)}. {_FASTER}" if waits_s else ""
    reason = "" if choice.verified else Reason.CHECKPOINT_UNVERIFIED
    return Step(
        status=moved(
            ctx,
            Phase.RESUMING,
            f"starting all {ctx.gang.size} ranks from {where}{avoiding}{delay}",
            reason=Reason.FRAMEWORK_BACKOFF if waits_s else reason,
            within_s=ctx.allowed_s(ctx.timing.resume_deadline_s) + waits_s,
            status=status,
        )
    )


def _verdict_open(ctx: Context) -> float | None:
    """Seconds until the last open verdict about one of the gang's nodes settles; None if all have."""
    waits = [
        (fault.settles_at - ctx.now).total_seconds()
        for fault in node_faults(ctx.world, frozenset(), ctx.timing, ctx.now)
        if fault.node in ctx.recovery.nodes and not fault.settled and fault.settles_at is not None
    ]
    return max(0.01, *waits) if waits else None


def _with_choice(ctx: Context, choice: CheckpointChoice) -> RecoveryStatus:
    words = f"{choice.path} is complete" if choice.verified else choice.reason
    reason = "Complete" if choice.verified else Reason.CHECKPOINT_UNVERIFIED
    known = [step for step in (ctx.status.last_step, last_step(ctx.world, ctx.spec)) if step is not None]
    return msgspec.structs.replace(
        ctx.status,
        checkpoint=choice,
        avoid_nodes=[name for name in ctx.status.avoid_nodes if not _is_back(ctx, name)],
        leftovers=sorted(leftover(pod) for pod in ctx.world.pods(ctx.gang.ref.uid) if pod.ended)[:4096],
        last_step=max(known, default=None),
        failed_log=_failed_log(ctx) or ctx.status.failed_log,
        conditions=condition(ctx, "CheckpointVerified", good=choice.verified, reason=reason, message=words),
    )


def _is_back(ctx: Context, name: str) -> bool:
    """It was only not heard of for a while, in one and the same boot: kept out, it would be missed on a full
    cluster. While a node is silent Kubernetes itself keeps new pods away."""
    node = ctx.world.nodes.get(name)
    if node is None or not node.ready:
        return False
    causes = [cause for cause in ctx.status.causes if cause.node == name]
    incidents = [ctx.world.incidents.get(cause.incident) for cause in causes]
    return bool(causes) and all(
        cause.fault is Fault.HOST and incident is not None and incident.spec.boot_id == node.boot_id
        for cause, incident in zip(causes, incidents, strict=True)
    )


def _failed_log(ctx: Context) -> FailedLog | None:
    """The end of the first witness' log: witnesses begin with the lost rank."""
    for witness in ctx.spec.witnesses:
        health = ctx.world.health.get(witness.node)
        ended = [p for p in health.status.pods if p.uid == witness.uid and p.tail] if health else []
        if ended:
            return FailedLog(pod=witness.pod, node=witness.node, tail=ended[-1].tail)
    return None
