"""Runs the phase Verifying: only the gang's own new steps prove that it trains again, and show from which
checkpoint. Pure.

If no agent can read the steps, a newer checkpoint is the proof. Without that, too, the recovery ends with the
reason SucceededUnverified.
"""

from __future__ import annotations

from datetime import timedelta

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted, refitted
from detectors.wire.training import PodProgress
from recover.api import Cause, Condition, Phase, RecoveryStatus
from recover.api.reasons import EventReason, Reason
from recover.diagnose.first_step import limit_of, shows_no_step
from recover.model import Pod, PodPhase
from recover.model.actions import Action
from recover.recovery import known_issues, scan_pod
from recover.recovery.accounting import last_step, lost_gpu_s, lost_steps, totals, trained_until
from recover.recovery.avoid import to_avoid
from recover.recovery.causes import first_cause
from recover.recovery.context import Context, Step, condition, moved, next_attempt, remove_scans
from recover.recovery.handover import names
from recover.recovery.scan_place import Unscannable, location
from recover.recovery.scanned import choice_of
from recover.triage.attempts import attempts_limit
from recover.workloads import workload_of
from recover.workloads.patches import environment_name

__all__ = ["verifying"]

_HOW = (
    "The job's template needs an optional envFrom with this ConfigMap: rekindle enable -f JOB.yaml "
    "writes the envFrom before you submit the job"
)
_REMOVED = (
    "Rekindle added an envFrom with this ConfigMap to the job's template at the start: find out which "
    "person, controller or webhook removed the envFrom"
)
"""The next step if no container reads the ConfigMap although the start added the envFrom: only for kinds
with `start_brings_environment`."""


def verifying(ctx: Context) -> Step:
    """Returns what the phase does now. The first training step that any new rank prints proves the resume,
    and shows from which checkpoint the gang began."""
    terminal = ctx.gang.terminal
    if terminal is not None and terminal.succeeded:
        return Step(status=_succeeded(ctx, None))
    if ctx.gang.suspended:
        message = f"{ctx.somebody()} has suspended {ctx.gang.ref} before its first new step"
        return Step(status=moved(ctx, Phase.ESCALATED, message, reason=ctx.undone()))
    first = _first_step(ctx)
    if first is not None:
        unknown_s = _last_step_unknown(ctx, first)
        if unknown_s is not None:
            return Step(requeue_after_s=unknown_s)
        return Step(status=_succeeded(ctx, first), writes=_told(ctx, first))
    if ctx.expired():
        patience_s = _second_line_s(ctx)
        return (
            Step(writes=remove_scans(ctx), requeue_after_s=patience_s) if patience_s > 0 else _no_steps(ctx)
        )
    return Step(writes=remove_scans(ctx), requeue_after_s=ctx.left_s())


def _last_step_unknown(ctx: Context, first: PodProgress) -> float | None:
    """Returns the seconds to wait for the old ranks' last step, which their agents report when the pods have
    ended. Returns None if the step is known, or will not come."""
    if _last_step(ctx) is not None or not ctx.recovery.witnesses:
        return None
    left = ctx.timing.settle_s - (ctx.now - (first.first_step_at or first.at)).total_seconds()
    return left if left > 0 else None


def _last_step(ctx: Context) -> int | None:
    known = (ctx.status.last_step, last_step(ctx.world, ctx.recovery))
    return max((step for step in known if step is not None), default=None)


def _first_step(ctx: Context) -> PodProgress | None:
    """Returns the report with the first step of a living rank. All old ranks had ended before the start, so
    no clock is needed to tell old and new ranks apart."""
    made = [
        progress
        for pod in ctx.living()
        if (progress := ctx.world.progress(pod)) is not None
        and progress.first_step is not None
        and not progress.tail
    ]
    return min(made, key=lambda p: (p.first_step_at or p.at, p.name), default=None)


def _second_line_s(ctx: Context) -> float:
    """Returns the seconds to wait for a second line with a step, if a rank has printed one line: at most as
    long again as for the first line, even if the node's clock is ahead. A job may print its steps once in
    half an hour, and one line proves nothing."""
    heard = [
        told.last_step_at
        for pod in ctx.living()
        for told in ctx.world.containers(pod)
        if told.first_step is None and told.last_step_at is not None and not told.tail
    ]
    latest = max(heard, default=None)
    if latest is None:
        return 0.0
    limit_s = limit_of(ctx.gang, ctx.timing) or ctx.timing.verify_deadline_s
    latest = min(latest, ctx.status.phases[-1].at + timedelta(seconds=limit_s))
    return limit_s - (ctx.now - latest).total_seconds()


def _succeeded(ctx: Context, first: PodProgress | None) -> RecoveryStatus:
    if first is None or first.first_step is None:
        message = f"{ctx.gang.ref} has completed before Rekindle saw its first new step"
        return moved(ctx, Phase.SUCCEEDED, message, reason=Reason.JOB_COMPLETED)
    at = first.first_step_at or first.at
    last = _last_step(ctx)
    steps = None if first.step_of_epoch else lost_steps(last, first.first_step)
    since = trained_until(ctx.world, ctx.recovery)
    gpu_s = lost_gpu_s(ctx.spec, since, at, steps, first.median_step_s)
    reason, words = _judged(ctx, first)
    changed = _delivered(ctx, _recipes_verified(ctx, stepped=True))
    status = refitted(
        ctx.status,
        last_step=last,
        resumed_step=first.first_step,
        lost_steps=steps,
        lost_gpu_s=gpu_s,
        totals=totals(ctx.world.history(ctx.gang.ref.uid), ctx.recovery, steps, gpu_s),
        conditions=condition(ctx, "ProgressVerified", good=True, reason=reason, message=words, among=changed),
    )
    return moved(ctx, Phase.SUCCEEDED, words, reason=reason if reason != "Resumed" else "", status=status)


def _delivered(ctx: Context, conditions: list[Condition]) -> list[Condition]:
    """Returns the conditions. If the new ranks have variables to read, a condition says whether they read
    them."""
    choice = ctx.status.checkpoint
    told = known_issues.handed_over(ctx) or (choice is not None and choice.verified)
    pods = _running(ctx)
    if not told or not pods:
        return conditions
    deaf, name = _deaf(ctx), environment_name(ctx.gang)
    if not deaf:
        reason, message = "Read", f"the ranks read ConfigMap {name}"
    else:
        reason = "NotRead"
        how = _REMOVED if workload_of(ctx.gang).start_brings_environment else _HOW
        message = (
            f"{len(deaf)} of {len(pods)} ranks do not read ConfigMap {name} and did not receive its "
            f"variables ({deaf[0]}). {how}"
        )
    return condition(
        ctx, "EnvironmentDelivered", good=not deaf, reason=reason, message=message, among=conditions
    )


def _running(ctx: Context) -> list[Pod]:
    return [pod for pod in ctx.living() if pod.phase is PodPhase.RUNNING]


def _deaf(ctx: Context) -> list[str]:
    """Returns the names of the running ranks that do not read the ConfigMap with the variables."""
    served = set(names(ctx))
    return [pod.name for pod in _running(ctx) if served.isdisjoint(pod.environments)]


def _recipes_verified(ctx: Context, *, stepped: bool) -> list[Condition]:
    return known_issues.verified(ctx, stepped=stepped, deaf=_deaf(ctx))


def _judged(ctx: Context, progress: PodProgress) -> tuple[str, str]:
    """Returns the reason and the words by the first new step. The checkpoint's step, or any higher step, is
    right. A lower step means an older checkpoint, or a start from scratch. If no checkpoint was verified, the
    last step that was seen before the stop is compared. A number that begins again with each epoch shows that
    the gang trains, and not from which checkpoint."""
    assert progress.first_step is not None
    choice, last, first = ctx.status.checkpoint, _last_step(ctx), progress.first_step
    seen = f"{ctx.gang.ref} trains again: its first new step is {first}"
    if progress.step_of_epoch:
        return "Resumed", f"{seen}, counted within an epoch; the log does not show the step of the whole run"
    if choice is not None and choice.step is not None:
        if first >= choice.step:  # a framework that counts from 0 prints the checkpoint's number first
            return "Resumed", seen
        if first <= 1 < choice.step:
            return (
                Reason.RESUMED_FROM_SCRATCH,
                f"{seen}; the job did not load the checkpoint {choice.path} and began from scratch",
            )
        return (
            Reason.RESUMED_OLDER,
            f"{seen}; the job began before the chosen step {choice.step} ({choice.path})",
        )
    if last is None or first > last:
        return "Resumed", seen
    lost = f"{seen}, and the last step before the failure was {last}"
    if first <= 1 < last:
        return Reason.RESUMED_FROM_SCRATCH, f"{lost}: the job loaded no checkpoint and began from scratch"
    return (
        Reason.RESUMED_OLDER,
        f"{lost}. No checkpoint was verified, so Rekindle does not know whether the job loaded its newest "
        "complete checkpoint",
    )


def _told(ctx: Context, first: PodProgress) -> tuple[Action, ...]:
    _, words = _judged(ctx, first)
    return (ctx.event(EventReason.RECOVERY_SUCCEEDED, words),)


def _no_steps(ctx: Context) -> Step:
    """Begins another attempt, or escalates after the last attempt, if a step was read before the stop and
    agents read the logs of all new ranks. If not, or if the job's owner wants no limit, a newer checkpoint is
    the proof: on a node without an agent a gang may train unseen."""
    limit_s = limit_of(ctx.gang, ctx.timing)
    is_read = all(shows_no_step(ctx.world, pod, ctx.now) for pod in ctx.living())
    if limit_s is None or _last_step(ctx) is None or not is_read:
        return _by_checkpoint(ctx)
    limit = attempts_limit(ctx.gang, ctx.settings.budgets)
    waited = f"no step within {limit_s:g} s of the start"
    tries = 1 + sum(1 for cause in ctx.status.causes if cause.attempt > 1 and cause.fault is Fault.HANG)
    if tries < limit:
        cause = fitted(
            Cause,
            incident=ctx.spec.incident,
            fault=Fault.HANG,
            attempt=ctx.status.attempt,
            at=ctx.now,
            summary=waited,
            finding=first_cause(ctx).finding,
        )
        return Step(
            status=next_attempt(ctx, [cause], f"{waited}; Rekindle stops all ranks once more", counts=True)
        )
    message = f"{waited}, in {tries} attempts: a person must look at {ctx.gang.ref}"
    status = refitted(
        ctx.status,
        conditions=condition(ctx, "ProgressVerified", good=False, reason=Reason.NO_STEPS, message=message),
    )
    return Step(
        status=moved(ctx, Phase.ESCALATED, message, reason=Reason.NO_STEPS, status=status),
        writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
    )


# --- a gang whose steps nobody can read -------------------------------------------------------------------


def _by_checkpoint(ctx: Context) -> Step:
    """Returns the step if all ranks run and none prints a step: a checkpoint newer than the chosen checkpoint
    proves progress."""
    try:
        place = location(ctx.gang)
    except Unscannable as why:
        return _unproven(ctx, str(why))
    before = ctx.status.checkpoint
    if before is None or before.step is None:
        return _unproven(
            ctx,
            "no checkpoint was verified before the resume, so Rekindle cannot tell whether a "
            "checkpoint is newer",
        )
    scan = ctx.world.scans.get(f"{ctx.gang.ref.namespace}/{scan_pod.later_name(ctx.recovery)}")
    if scan is not None and scan.ended:
        found = choice_of(ctx, scan, place.at.path)
        if found.step is not None and found.step > before.step:
            return _proven(ctx, f"{found.path} (step {found.step}) is newer than step {before.step}")
        seen = f"the newest checkpoint has step {found.step}" if found.step is not None else found.reason
        return _unproven(ctx, f"no checkpoint is newer than step {before.step}: {seen}")
    if _scan_left_s(ctx) <= 0:
        return _unproven(ctx, "the scan for a newer checkpoint did not end in time")
    if scan is not None:
        return Step(requeue_after_s=_scan_left_s(ctx))
    off = to_avoid(ctx.gang, ctx.world, ctx.now)
    made = scan_pod.create_later(ctx.recovery, ctx.gang, ctx.world, ctx.settings, off)
    return Step(writes=(made,) if made else (), requeue_after_s=_scan_left_s(ctx))


def _scan_left_s(ctx: Context) -> float:
    """Returns the seconds that are left for the scan, which begins at the deadline of the phase."""
    assert ctx.status.deadline is not None, "Verifying has a deadline"
    end = ctx.status.deadline + timedelta(seconds=ctx.timing.scan_deadline_s)
    return (end - ctx.now).total_seconds()


def _proven(ctx: Context, why: str) -> Step:
    message = f"{ctx.gang.ref} trains again: the log shows no steps, but {why}"
    status = refitted(
        ctx.status,
        conditions=condition(
            ctx,
            "ProgressVerified",
            good=True,
            reason="NewerCheckpoint",
            message=message,
            among=_recipes_verified(ctx, stepped=True),
        ),
    )
    return Step(
        status=moved(ctx, Phase.SUCCEEDED, message, status=status),
        writes=(ctx.event(EventReason.RECOVERY_SUCCEEDED, message),),
    )


def _unproven(ctx: Context, why: str) -> Step:
    message = f"all {ctx.gang.size} ranks run, and Rekindle cannot read their steps; {why}"
    reason = Reason.SUCCEEDED_UNVERIFIED
    status = refitted(
        ctx.status,
        conditions=condition(
            ctx,
            "ProgressVerified",
            good=False,
            reason=reason,
            message=message,
            among=_recipes_verified(ctx, stepped=False),
        ),
    )
    return Step(
        status=moved(ctx, Phase.SUCCEEDED, message, reason=reason, status=status),
        writes=(ctx.event(EventReason.RECOVERY_SUCCEEDED, message, warning=True),),
    )
