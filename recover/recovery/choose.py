"""Runs the phase Choosing: finds the newest complete checkpoint, once no old pod can write any more. Pure."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.fitting import refitted
from recover.api import CheckpointChoice, Phase, RecoveryStatus
from recover.api.reasons import EventReason, Reason
from recover.diagnose.node_faults import node_faults
from recover.k8s.kinds import PODS
from recover.model import Pod, Refusal
from recover.model.actions import Action
from recover.policy.consent import ON_TERMINAL
from recover.recovery import known_issues, scan_pod, scan_trouble
from recover.recovery.accounting import last_step
from recover.recovery.avoid import shown, to_avoid
from recover.recovery.context import Context, Step, condition, moved
from recover.recovery.failed_log import failed_log
from recover.recovery.loading import passed_over
from recover.recovery.recreate import delay_s, obstacle, will_be_recreated
from recover.recovery.scan_place import Unscannable, location
from recover.recovery.scanned import begins_from, choice_of, entered, unverified, waited_s
from recover.triage.attempts import attempts_without_progress, cause_words, restarts_limit

__all__ = ["choosing"]

_FASTER = (
    f"With the annotation {ON_TERMINAL}: recreate on the job, Rekindle would delete the job and create "
    "it again instead"
)
CREATED_S = 0.1
"""Time until the next reconcile after the creation of a scan. If the creation is refused, no object exists
whose change would start a reconcile."""


def choosing(ctx: Context) -> Step:
    name = scan_pod.scan_name(ctx.recovery)
    scan, refusal = ctx.world.scans.get(f"{ctx.gang.ref.namespace}/{name}"), _refusal(ctx, name)
    given_up = ctx.status.checkpoint
    if given_up is not None and given_up.attempt == ctx.status.attempt:
        return _withdrawn(ctx, scan, given_up)
    try:
        place = location(ctx.gang)
    except Unscannable as why:
        return _given_up(ctx, scan, unverified(ctx, str(why)))
    if scan is not None and scan.ended:
        choice = choice_of(ctx, scan, place.at.path)
        if scan_pod.knew_too_little(scan, choice):
            return _scanned_again(ctx, scan, choice)
        return _decided(ctx, choice)
    trouble = _hopeless(ctx, scan, refusal)
    if trouble is None and ctx.expired():
        took = f"the scan did not end within {ctx.timing.scan_deadline_s:g} s"
        trouble = f"{took}: {scan_trouble.unread(scan, refusal)}"
    if trouble is not None:
        return _given_up(ctx, scan, unverified(ctx, trouble, scan_s=waited_s(ctx)))
    requeue_after_s = CREATED_S if scan is None and refusal is None else scan_trouble.REQUEUE_S
    return Step(writes=_running(ctx, scan), requeue_after_s=min(_left(ctx), requeue_after_s))


def _scanned_again(ctx: Context, scan: Pod, choice: CheckpointChoice) -> Step:
    """Removes a scan that chose a checkpoint that does not load; the next scan passes over that checkpoint.
    Anyone who may change the pod can prevent its removal."""
    if ctx.expired():
        why = (
            f"the scan chose step {choice.step}, which does not load, and no other scan could begin "
            f"within {ctx.timing.scan_deadline_s:g} s"
        )
        return _decided(ctx, unverified(ctx, why, scan_s=waited_s(ctx)))
    removal = (scan_pod.remove(scan),) if scan.deleting_since is None else ()
    return Step(writes=removal, requeue_after_s=min(_left(ctx), scan_trouble.REQUEUE_S))


def _given_up(ctx: Context, scan: Pod | None, choice: CheckpointChoice) -> Step:
    """Decides without the scan. A scan that may write must end first, so the decision is kept until then."""
    if scan is not None and scan_pod.may_write(scan):
        return Step(status=msgspec.structs.replace(ctx.status, checkpoint=choice))
    return _decided(ctx, choice)


def _withdrawn(ctx: Context, scan: Pod | None, choice: CheckpointChoice) -> Step:
    """Ends a scan that the recovery no longer waits for. A scan that may write must have ended before the
    gang may write to the volume again."""
    if scan is None or not scan_pod.may_write(scan):
        return _decided(ctx, choice)
    assert ctx.status.deadline is not None, "Choosing has a deadline"
    if ctx.now >= ctx.status.deadline + timedelta(seconds=ctx.timing.stop_deadline_s):
        message = (
            f"the scan {scan.name} on {scan.node or 'no node'} may change the checkpoints and does "
            f"not end. Rekindle stopped waiting for the scan, because {choice.reason}"
        )
        return Step(
            status=moved(ctx, Phase.BLOCKED, message, reason=Reason.PODS_STUCK),
            writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
        )
    removal = (scan_pod.remove(scan),) if scan.deleting_since is None else ()
    return Step(writes=removal, requeue_after_s=scan_trouble.REQUEUE_S)


def _refusal(ctx: Context, name: str) -> Refusal | None:
    """Returns the refusal of the scan pod in this phase. An earlier refusal does not count: a quota may have
    been full while the old pods still ran."""
    refusal = ctx.world.refusal(PODS, name, ctx.gang.ref.namespace)
    return refusal if refusal is not None and refusal.at >= entered(ctx) else None


def _hopeless(ctx: Context, scan: Pod | None, refusal: Refusal | None) -> str | None:
    """Returns why the recovery should not wait any longer, or None if the scan may still answer."""
    if scan is not None:
        return scan_trouble.of_waiting(scan, waited_s(ctx))
    return scan_trouble.refused(refusal, waited_s(ctx)) if refusal is not None else None


def _running(ctx: Context, scan: Pod | None) -> tuple[Action, ...]:
    """Creates the scan if it is missing, and removes its scheduling gate."""
    off = to_avoid(ctx.gang, ctx.world, ctx.now)
    if scan is None:
        created = scan_pod.create(ctx.recovery, ctx.gang, ctx.world, ctx.settings, off)
        return (created,) if created else ()
    if scan_pod.is_outdated(scan, ctx.recovery, ctx.gang, ctx.world, ctx.settings, off):
        return (scan_pod.remove(scan),)
    return (scan_pod.release(scan),) if scan.gated else ()


def _left(ctx: Context) -> float:
    assert ctx.status.deadline is not None, "Choosing has a deadline"
    return max(0.01, (ctx.status.deadline - ctx.now).total_seconds())


# --- on to the resume -------------------------------------------------------------------------------------


def _decided(ctx: Context, choice: CheckpointChoice) -> Step:
    """Delays the resume while a verdict about one of the gang's nodes is still open, looks for known issues,
    and ends a loop of restarts."""
    open_until = _verdict_open(ctx)
    if open_until is not None:
        return Step(requeue_after_s=open_until)
    history = ctx.world.history(ctx.gang.ref.uid)
    since = ctx.now - timedelta(seconds=ctx.timing.recovery_window_s)
    status = shown(ctx, known_issues.recognised(ctx, _with_choice(ctx, choice)))
    ended = known_issues.held(ctx, status)
    if ended is not None:
        return ended
    attempts = attempts_without_progress(history, ctx.recovery, status, since)
    limit = restarts_limit(ctx.recovery, ctx.gang, ctx.settings.budgets)
    if attempts > limit:
        message = (
            f"{attempts - 1} restarts for the same cause ({cause_words(ctx.recovery)}) brought "
            f"{_nothing_new(status)}; the limit is {limit}. {ctx.gang.ref} stays suspended"
        )
        status = known_issues.not_tried(ctx, status)
        return Step(
            status=moved(ctx, Phase.ESCALATED, message, reason=Reason.CRASH_LOOP, status=status),
            writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
        )
    over = passed_over(ctx.recovery, choice)
    over = "".join(f"; {words}" for words in (over, choice.unfound) if words)
    avoiding = f", away from {', '.join(status.avoid_nodes)}" if status.avoid_nodes else ""
    changes = "".join(f"; {use.message}" for use in status.recipes if use.attempt == status.attempt)
    waits_s = 0.0 if will_be_recreated(ctx) else delay_s(ctx)
    delay = f"; {obstacle(ctx)}. {_FASTER}" if waits_s else ""
    reason = "" if choice.verified else Reason.CHECKPOINT_UNVERIFIED
    return Step(
        status=moved(
            ctx,
            Phase.RESUMING,
            f"Rekindle starts all {ctx.gang.size} ranks from "
            f"{begins_from(choice)}{over}{avoiding}{delay}{changes}",
            reason=Reason.FRAMEWORK_BACKOFF if waits_s else reason,
            within_s=ctx.allowed_s(ctx.timing.resume_deadline_s) + waits_s,
            status=status,
        )
    )


def _nothing_new(status: RecoveryStatus) -> str:
    """Returns in words which progress was missing (triage/attempts.py)."""
    if status.checkpoint is not None and status.checkpoint.step is not None:
        return "no newer complete checkpoint"
    return "no new step" if status.last_step is not None else "no new step that an agent has read"


def _verdict_open(ctx: Context) -> float | None:
    """Returns the seconds until the last open verdict about one of the gang's nodes settles, or None if all
    have settled."""
    reports = {name: ctx.world.health[name] for name in ctx.recovery.nodes if name in ctx.world.health}
    found, _ = node_faults(ctx.world, reports, frozenset(), ctx.timing, ctx.now)
    waits = [
        (fault.settles_at - ctx.now).total_seconds()
        for fault in found
        if not fault.settled and fault.settles_at is not None
    ]
    return max(0.01, *waits) if waits else None


def _with_choice(ctx: Context, choice: CheckpointChoice) -> RecoveryStatus:
    words = choice.reason
    if choice.verified:
        words = f"{choice.path} is complete" + (f": {choice.reason}" if choice.reason else "")
    words += f"; {choice.unfound}" if choice.unfound else ""
    reason = "Complete" if choice.verified else Reason.CHECKPOINT_UNVERIFIED
    steps = [step for step in (ctx.status.last_step, last_step(ctx.world, ctx.recovery)) if step is not None]
    return refitted(
        ctx.status,
        checkpoint=choice,
        leftovers=ctx.leftovers(),
        last_step=max(steps, default=None),
        failed_log=failed_log(ctx) or ctx.status.failed_log,
        conditions=condition(ctx, "CheckpointVerified", good=choice.verified, reason=reason, message=words),
    )
