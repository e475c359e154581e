"""Runs the phases Planned and Stopping, until no old pod runs any more; fence.py handles dead nodes. Pure."""

from __future__ import annotations

from datetime import timedelta

from detectors.wire.fitting import refitted
from recover.api import Phase, RecoveryStatus
from recover.api.reasons import EventReason, Reason
from recover.diagnose.ranks import losses
from recover.diagnose.starts import ranks
from recover.k8s.kinds import PODS
from recover.model import Pod
from recover.model.actions import Action, Delete
from recover.model.tolerations import of_pods
from recover.model.world import REFUSED_AGAIN_S
from recover.recovery import scan_pod
from recover.recovery.avoid import to_avoid
from recover.recovery.causes import are_gone, first_cause
from recover.recovery.context import Context, Step, moved, remove_scans, taken
from recover.recovery.wake import woken
from recover.triage.capacity import priority_of
from recover.triage.guard import Denied, Verdict, may_touch
from recover.workloads import workload_of

__all__ = [
    "given_up",
    "has_lost_rank",
    "old_pods_ended",
    "planned",
    "removed",
    "stopping",
    "stuck_words",
    "unstuck",
]


def planned(ctx: Context) -> Step:
    """Checks once more whether the gang may be touched, because people may have forbidden it since. Then the
    gang is stopped while its next phase is written. If the gang is stopped already, an earlier controller did
    this, and ended before it could write the phase."""
    if not ctx.has("stopped"):
        verdict = may_touch(ctx.world, ctx.gang, ctx.now)
        if isinstance(verdict, Denied):
            return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))
        if gone := are_gone(ctx):
            return Step(status=moved(ctx, Phase.FAILED, gone, reason=Reason.CAUSE_GONE))
    cause, said = first_cause(ctx), ctx.spec.priority
    status = refitted(
        ctx.status,
        causes=[cause],
        priority=said if said is not None else priority_of(ctx.world, ctx.gang),
        tolerations=ctx.spec.tolerations or of_pods(ctx.world, ctx.gang),
    )
    message = f"Rekindle stops all {ctx.gang.size} ranks: {cause.summary}"
    status = moved(ctx, Phase.STOPPING, message, within_s=ctx.stop_s(), status=status)
    return Step(status=status, stop=_first_stop(ctx, message))


def _first_stop(ctx: Context, message: str) -> tuple[Action, ...]:
    """Returns the first stop, or nothing if `stopping` has more to decide about it."""
    gang = ctx.gang
    is_refused = ctx.world.refusal(gang.resource, gang.ref.name, gang.ref.namespace) is not None
    if ctx.has("stopped") or gang.suspended or gang.terminal is not None or is_refused:
        return ()
    return _stop(ctx, message)


def _stop(ctx: Context, message: str) -> tuple[Action, ...]:
    before, workload = ctx.gang.mark, workload_of(ctx.gang)
    mark = ctx.mark("stopped", ())
    if before is not None:
        mark = ctx.mark("stopped", before.avoided, before.placed, before.suspected)
    return (*workload.stop(ctx.gang, mark), *(_beside(ctx, message) if workload.stops_at_once else ()))


def stopping(ctx: Context) -> Step:
    """Stops the gang once, by a change that its framework does not count as a failure, then waits until the
    old pods have ended."""
    if ctx.gang.terminal is not None:
        return _cleared(ctx)
    return _stopped(ctx) if ctx.has("stopped") else _to_stop(ctx)


def _to_stop(ctx: Context) -> Step:
    """Returns the step for a gang that this recovery has not stopped: the stop, or the reason why the
    recovery ends without one."""
    gang = ctx.gang
    if gang.suspended:
        message = f"{gang.ref} was suspended by {ctx.somebody()}"
        return Step(status=moved(ctx, Phase.FAILED, message, reason=Reason.HELD))
    verdict = _may_stop(ctx)
    if isinstance(verdict, Denied):
        return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))
    if ctx.status.attempt == 1 and (gone := are_gone(ctx)):
        return Step(status=moved(ctx, Phase.FAILED, gone, reason=Reason.CAUSE_GONE))
    refusal = ctx.refusal_of_job()
    if ctx.expired() or not ctx.is_reported(refusal):
        return _not_taken(ctx)
    if pause_s := ctx.pause_s(refusal):
        return Step(requeue_after_s=pause_s)
    writes = _stop(ctx, ctx.status.message)
    return Step(writes=writes, requeue_after_s=REFUSED_AGAIN_S if refusal is not None else None)


def _stopped(ctx: Context) -> Step:
    """Returns the step for a gang whose stop the API server has accepted. Some frameworks need further writes
    for a stop."""
    gang = ctx.gang
    if not gang.suspended:
        message = f"{ctx.somebody()} has started {gang.ref} again after Rekindle stopped the job"
        return Step(status=given_up(ctx, message, ctx.undone()))
    rest = workload_of(gang).unfinished(gang)
    if rest and ctx.expired():
        return _not_taken(ctx)
    if rest:
        return Step(writes=(*rest, *_beside(ctx, ctx.status.message)), requeue_after_s=ctx.left_s())
    if ctx.status.reason and ctx.status.phase is Phase.STOPPING:
        message = (
            f"the API server has accepted the stop of {gang.ref}; Rekindle waits until all {gang.size} "
            "ranks have ended"
        )
        return Step(status=taken(ctx, message, within_s=ctx.stop_s()))
    return _waited(ctx)


def _may_stop(ctx: Context) -> Verdict:
    """Decides whether the gang may be stopped. A pause prevents the stop of a gang. The exception is a gang
    that this recovery has stopped before, and that has lost a rank since or never ran as a whole: it is
    started again, because the pause would otherwise leave it down."""
    before = ctx.status.attempt - 1
    ran = any(one.phase is Phase.VERIFYING and one.attempt == before for one in ctx.status.phases)
    is_down_by_us = before > 0 and (has_lost_rank(ctx) or (before in ctx.status.uncounted and not ran))
    return may_touch(ctx.world, ctx.gang, ctx.now, heeds_pause=not is_down_by_us)


def has_lost_rank(ctx: Context) -> bool:
    """Whether the gang has lost a rank, so that a stop takes nothing from it."""
    return ctx.gang.terminal is not None or bool(losses(ctx.world, ranks(ctx.world, ctx.gang), ctx.now))


def _beside(ctx: Context, message: str) -> tuple[Action, ...]:
    """Returns the actions that go with the last write of a stop, which must not wait for them: the gated
    scan, and the Event about the stop."""
    gated = ctx.settings.scheduling_gates
    off = to_avoid(ctx.gang, ctx.world, ctx.now)
    scan = scan_pod.create(ctx.recovery, ctx.gang, ctx.world, ctx.settings, off) if gated else None
    told = ctx.event(EventReason.RECOVERY_STARTED, message)
    return (*((scan,) if scan else ()), told)


def _not_taken(ctx: Context) -> Step:
    """Returns the step for a stop that is refused, or that nobody answers, for example because the server of
    a webhook is gone. Rekindle tries the stop again and again."""
    within_s, refusal = ctx.timing.stop_deadline_s, ctx.refusal_of_job()
    if refusal is not None:
        reason = Reason.STOP_REFUSED
        message = (
            f"the API server refuses the stop of {ctx.gang.ref}, and Rekindle tries again: "
            f"{ctx.words_of(refusal)}"
        )
    else:
        reason = Reason.FRAMEWORK_SILENT
        message = (
            f"the API server did not accept the stop of {ctx.gang.ref} within {within_s:g} s, and "
            "Rekindle tries again. Check that the framework's controller runs: it also serves the "
            "framework's webhooks"
        )
    status = refitted(
        ctx.status,
        reason=reason,
        message=message,
        deadline=ctx.now + timedelta(seconds=within_s),
    )
    return Step(status=status, writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),))


def _cleared(ctx: Context) -> Step:
    """Removes what is left of a job that its framework has permanently failed: such a job reacts to no
    stop."""
    verdict = _may_stop(ctx)
    if isinstance(verdict, Denied):
        return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))
    left = [pod for pod in ctx.living() if pod.deleting_since is None]
    if left:
        return Step(writes=tuple(removed(pod) for pod in left))
    return _waited(ctx)


def _waited(ctx: Context) -> Step:
    living = ctx.remaining()
    if not living:
        return Step(status=old_pods_ended(ctx))
    step = _waited_for(ctx, living)
    is_untold = any(pod.deleting_since is None and not pod.ended for pod in living)
    return woken(ctx, step) if is_untold else step


def _waited_for(ctx: Context, living: list[Pod]) -> Step:
    if all(ctx.is_lost(pod) for pod in living):
        nodes = ", ".join(sorted({pod.node for pod in living}))
        message = (
            f"Rekindle waits for proof that {len(living)} old pod{_s(living)} can no longer write: "
            "Kubernetes "
            f"does not hear from {nodes}"
        )
        return Step(status=moved(ctx, Phase.FENCING, message, within_s=ctx.timing.fence_wait_s))
    is_told = ctx.status.phase is Phase.BLOCKED
    if not is_told and not ctx.expired():
        return Step(requeue_after_s=ctx.left_s())
    message = stuck_words(ctx, living)
    if is_told and ctx.status.message == message:
        return Step()
    if is_told:
        return Step(status=refitted(ctx.status, message=message))
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=Reason.PODS_STUCK),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
    )


def _s(living: list[Pod]) -> str:
    return "" if len(living) == 1 else "s"


def stuck_words(ctx: Context, living: list[Pod]) -> str:
    names = ", ".join(f"{pod.name} on {pod.node or 'no node'}" for pod in living[:5])
    return (
        f"{len(living)} old pod{_s(living)} did not end in time: {names}. {ctx.gang.ref} stays suspended. "
        "The recovery continues when the old pods have ended"
    )


def unstuck(ctx: Context) -> Step:
    """Continues a recovery that is blocked for old pods, or for a scan that may write, as soon as none of
    them lives."""
    writing = [scan for scan in scan_pod.of_attempt(ctx.world, ctx.recovery) if scan_pod.may_write(scan)]
    return Step(writes=remove_scans(ctx)) if writing else stopping(ctx)


def given_up(ctx: Context, message: str, reason: Reason) -> RecoveryStatus:
    """Returns the status of a recovery that is given up. Somebody else has started the stopped gang. The
    status keeps the earlier pods as leftovers, so that they do not count as new losses."""
    status = refitted(ctx.status, leftovers=ctx.leftovers())
    return moved(ctx, Phase.ESCALATED, message, reason=reason, status=status)


def old_pods_ended(ctx: Context) -> RecoveryStatus:
    message = "all old pods have ended; Rekindle chooses the checkpoint"
    return moved(ctx, Phase.CHOOSING, message, within_s=ctx.timing.scan_deadline_s)


def removed(pod: Pod, grace_s: int | None = None) -> Delete:
    return Delete(
        what="free-pod",
        resource=PODS,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        grace_s=grace_s,
    )
