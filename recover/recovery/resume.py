"""Runs the phase Resuming: the whole gang starts on other nodes, once, after all old pods have ended.
Pure."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.fitting import refitted
from recover.api import Phase, RecoveryStatus
from recover.api.reasons import EventReason, Reason
from recover.diagnose.first_step import limit_of
from recover.diagnose.starts import new_pods
from recover.k8s.kinds import CONFIGMAPS, PODS
from recover.model import Gang, Pod, PodPhase, Refusal
from recover.model.actions import Action, ConfirmListed
from recover.model.world import REFUSED_AGAIN_S
from recover.policy.consent import hold_of_gang
from recover.recovery import known_issues
from recover.recovery.again import placed_again
from recover.recovery.avoid import avoidance, shown
from recover.recovery.context import REFUSAL_CHARS_MAX, Context, Step, moved, remove_scans, taken
from recover.recovery.handover import handed_over, names
from recover.recovery.hold import without_room
from recover.recovery.recreate import instead_of_start
from recover.recovery.stop import stuck_words
from recover.recovery.wake import woken
from recover.workloads import workload_of
from recover.workloads.patches import environment_name

__all__ = ["resuming"]

HELD_REQUEUE_S = 10.0
"""Time until the next reconcile during a hold. A hold may end by time alone, without any change."""
_PASSING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container waits in any start."""
PENDING_TOLD_S = 5.0
"""Time that the scheduler may need to see that the old pods' accelerators are free."""


def resuming(ctx: Context) -> Step:
    """Writes the environment, starts the gang once, then waits until every rank runs."""
    gang = ctx.gang
    if not ctx.has("resumed"):
        return _start(ctx)
    if gang.suspended:
        message = f"{ctx.somebody()} has suspended {gang.ref} after Rekindle started the job"
        return Step(status=moved(ctx, Phase.ESCALATED, message, reason=ctx.undone()))
    pods = ctx.living()
    ended = sum(1 for p in new_pods(ctx.world, ctx.gang) if p.phase is PodPhase.SUCCEEDED)
    running = sum(1 for p in pods if p.phase is PodPhase.RUNNING)
    if running and running + ended >= gang.size:
        message = f"all {gang.size} ranks run; Rekindle waits for the first new step"
        return Step(
            status=moved(ctx, Phase.VERIFYING, message, within_s=_verify_s(ctx)),
            writes=remove_scans(ctx),
        )
    if running and running + ended >= gang.size - gang.may_lack and _is_all_that_fits(ctx, pods):
        message = (
            f"{_how_many(ctx, running)}, as many as fit: the job is elastic. Rekindle waits for the "
            "first new step"
        )
        return Step(
            status=moved(ctx, Phase.VERIFYING, message, within_s=_verify_s(ctx)),
            writes=remove_scans(ctx),
        )
    again = placed_again(ctx, pods)
    if again is not None and again.status is not None:
        return again
    if ctx.status.reason == Reason.START_REFUSED:
        message = (
            f"the API server has accepted the start of {gang.ref}; Rekindle waits until all {gang.size} "
            "ranks run"
        )
        return Step(status=taken(ctx, message, within_s=ctx.timing.resume_deadline_s))
    if ctx.expired() and ctx.status.phase is not Phase.BLOCKED:
        reason, message = _short(ctx, pods, running)
        return Step(
            status=moved(ctx, Phase.BLOCKED, message, reason=reason),
            writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
        )
    waiting = _waiting(ctx, pods, running)
    if len(pods) + ended < gang.size - gang.may_lack:
        waiting = woken(ctx, waiting)
    return waiting if again is None else _sooner(waiting, again.requeue_after_s)


def _verify_s(ctx: Context) -> float:
    """Returns the seconds that the gang has for its first step: the same limit as for a gang without a
    recovery. If the owner wants no limit, the deadline of the setting applies."""
    return limit_of(ctx.gang, ctx.timing) or ctx.timing.verify_deadline_s


def _is_all_that_fits(ctx: Context, pods: list[Pod]) -> bool:
    """Whether the scheduler has had enough time, and has no place for any of the other ranks."""
    had_s = (ctx.now - ctx.status.phases[-1].at).total_seconds()
    return had_s >= PENDING_TOLD_S and all(p.phase is PodPhase.RUNNING or p.unschedulable for p in pods)


def _sooner(step: Step, requeue_after_s: float | None) -> Step:
    waits = [wait_s for wait_s in (step.requeue_after_s, requeue_after_s) if wait_s is not None]
    return msgspec.structs.replace(step, requeue_after_s=min(waits, default=None))


def _waiting(ctx: Context, pods: list[Pod], running: int) -> Step:
    """Returns the step that waits. Its message says within seconds why ranks wait, and is written again as
    their number changes."""
    status, is_short = ctx.status, ctx.status.reason in (Reason.NO_CAPACITY, Reason.RANKS_NOT_STARTED)
    told_in_s = PENDING_TOLD_S - (ctx.now - status.phases[-1].at).total_seconds()
    is_news = not is_short and told_in_s <= 0 and any(pod.unschedulable for pod in pods)
    if is_news or (is_short and not status.message.startswith(_how_many(ctx, running))):
        reason, message = _short(ctx, pods, running)
        return Step(status=refitted(status, reason=reason, message=message))
    waits = [left for left in (ctx.left_s(), told_in_s) if left is not None and left > 0]
    return Step(writes=remove_scans(ctx), requeue_after_s=min(waits, default=None))


def _start(ctx: Context) -> Step:
    gang = ctx.gang
    if not gang.suspended and gang.terminal is None:
        message = f"{ctx.somebody()} has started {gang.ref} before Rekindle started the job"
        return Step(status=moved(ctx, Phase.ESCALATED, message, reason=ctx.undone()))
    living = ctx.remaining()
    if living and ctx.expired():
        message = stuck_words(ctx, living)
        return Step(
            status=moved(ctx, Phase.BLOCKED, message, reason=Reason.PODS_STUCK),
            writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
        )
    if living:
        return Step(requeue_after_s=ctx.left_s())
    held = _held(ctx)
    if held is not None:
        return held
    found = avoidance(ctx, ctx.status)
    waiting = without_room(ctx, found.required)
    if waiting is not None:
        return waiting
    status = shown(ctx, ctx.status)
    if status != ctx.status:
        return Step(status=_kept_off(ctx, status))
    mark = ctx.mark("resumed", found.hosts, known_issues.placed(ctx), found.suspected_hosts)
    told = handed_over(ctx)
    instead = instead_of_start(ctx, mark, told)
    if instead is not None:
        return instead
    parts = ctx.world.parts(gang)
    if not workload_of(gang).startable(gang, parts):
        return _not_startable(ctx)
    refusal = _refusal(ctx)
    if ctx.expired() or not ctx.is_reported(refusal):
        return _not_taken(ctx)
    if pause_s := ctx.pause_s(refusal):
        return Step(requeue_after_s=pause_s)
    writes: tuple[Action, ...] = (_confirmed_ended(gang), *told, *workload_of(gang).start(gang, mark, parts))
    return Step(writes=writes, requeue_after_s=REFUSED_AGAIN_S if refusal is not None else None)


def _confirmed_ended(gang: Gang) -> ConfirmListed:
    """Returns the live read that confirms that no old pod is left. A watch that lags may hide a pod that was
    created just before the stop and has not ended."""
    labels = f"{workload_of(gang).pod_label}={gang.ref.name}"
    return ConfirmListed(
        what="confirm-pods-ended", resource=PODS, namespace=gang.ref.namespace, labels=labels
    )


def _held(ctx: Context) -> Step | None:
    """Keeps a stopped gang stopped while a hold exists. The gang is started once the hold ends."""
    gang, status = ctx.gang, ctx.status
    is_held = (status.phase, status.reason) == (Phase.BLOCKED, Reason.HELD)
    why = hold_of_gang(gang, ctx.world.namespaces.get(gang.ref.namespace), ctx.now)
    if why and is_held:
        return Step(requeue_after_s=HELD_REQUEUE_S)
    if why:
        message = f"{gang.ref} stays stopped: {why}. Rekindle starts the job when the hold ends"
        return Step(
            status=moved(ctx, Phase.BLOCKED, message, reason=Reason.HELD),
            writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
        )
    if is_held:
        message = f"the hold on {gang.ref} has ended: Rekindle starts all {gang.size} ranks"
        within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
        return Step(status=moved(ctx, Phase.RESUMING, message, within_s=within_s))
    return None


def _kept_off(ctx: Context, status: RecoveryStatus) -> RecoveryStatus:
    """Returns the status with the changes of the avoided nodes since the checkpoint was chosen."""
    more = ", ".join(sorted(set(status.avoid_nodes) - set(ctx.status.avoid_nodes)))
    message = (
        f"{status.message}; the start also avoids nodes that broke in the meantime: {more}"
        if more
        else status.message
    )
    return refitted(status, message=message)


def _not_taken(ctx: Context) -> Step:
    """Returns the step for a start that is refused each time, or that was not accepted in time, for example
    because the controller did not run. Rekindle tries the start again and again."""
    within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
    refusal = _refusal(ctx)
    if refusal is not None:
        how = f"was refused, and Rekindle tries again: {ctx.words_of(refusal)}"
        if "immutable" in refusal.words:
            how += (
                f". To correct that: kubectl delete configmap -n {ctx.gang.ref.namespace} "
                f"{' '.join(names(ctx))}"
            )
    else:
        how = f"was not accepted within {within_s:g} s, and Rekindle tries again"
    message = (
        f"the start of {ctx.gang.ref}, or the ConfigMap {environment_name(ctx.gang)} that its ranks "
        f"read, {how}"
    )
    status = refitted(
        ctx.status,
        reason=Reason.START_REFUSED,
        message=message,
        deadline=ctx.now + timedelta(seconds=within_s),
    )
    return Step(status=status, writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),))


def _refusal(ctx: Context) -> Refusal | None:
    read = ((CONFIGMAPS, name) for name in names(ctx))
    return ctx.refusal(*read, (ctx.gang.resource, ctx.gang.ref.name))


def _not_startable(ctx: Context) -> Step:
    """Returns the step for a gang that its framework has not prepared. The recovery continues by itself as
    soon as the framework's controller has done its part."""
    if not ctx.expired():
        return Step(requeue_after_s=ctx.left_s())
    message = (
        f"the framework's controller has not prepared {ctx.gang.ref} for a start. Check that this "
        "controller runs"
    )
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=Reason.FRAMEWORK_SILENT),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
    )


def _how_many(ctx: Context, running: int) -> str:
    return f"{running} of {ctx.gang.size} ranks run"


def _short(ctx: Context, pods: list[Pod], running: int) -> tuple[Reason, str]:
    """Returns the reason and the words for missing ranks. The words change as ranks come and go, but not with
    each message of the scheduler: the scheduler repeats its message with other numbers at every change of a
    large cluster."""
    unplaced = next((p.unschedulable for p in pods if p.unschedulable), "")
    kept_off = f" (kept off {', '.join(ctx.status.avoid_nodes)})" if ctx.status.avoid_nodes else ""
    short = f"{_how_many(ctx, running)}{kept_off}"
    if unplaced:
        return Reason.NO_CAPACITY, f"{short}: {unplaced}. The recovery continues as soon as there is room"
    why = _not_started(ctx, pods)[:REFUSAL_CHARS_MAX]
    return Reason.RANKS_NOT_STARTED, f"{short}: {why}. The recovery continues as soon as all ranks run"


def _not_started(ctx: Context, pods: list[Pod]) -> str:
    """Returns why ranks do not start that have found a place, or have no pod at all."""
    for pod in pods:
        for container in pod.containers:
            if container.waiting is not None and container.waiting.reason not in _PASSING:
                said = f": {container.waiting.message}" if container.waiting.message else ""
                return f"{pod.name} on {pod.node or 'no node'} waits: {container.waiting.reason}{said}"
    missing = ctx.gang.size - len(new_pods(ctx.world, ctx.gang))
    if missing > 0:
        is_staged = any(template.after for template in ctx.gang.templates.values())
        staged = "they wait until other ranks have succeeded, " if is_staged else ""
        return (
            f"{missing} ranks have no pod. Either {staged}the framework's controller does not run, or a "
            "quota or a policy of the namespace refuses the pods"
        )
    return "their containers have not started"
