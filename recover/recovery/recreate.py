"""Deletes and creates again a job that its framework would not start again as a whole, if the job consents.
Pure.

Part of the phase Resuming. The definition is in the Recovery before the job is deleted, so a crash at any
instant loses nothing: the job is created again from the definition, and has the mark by which Rekindle
recognises it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from detectors.wire.fitting import fitted, refitted
from recover.api import DEFINITION_CHARS_MAX, Phase, PhaseTime, Recovery, RecoveryStatus, Recreation
from recover.api.reasons import EventReason, Reason
from recover.model import Gang, Mark, PodPhase, Refusal, World
from recover.model.actions import Action, ConfirmGone, Create, Delete
from recover.policy.consent import ON_TERMINAL, may_recreate
from recover.policy.settings import Timing
from recover.recovery.context import Context, Step, allowed_s, moved
from recover.workloads import resource_of, workload_if_known, workload_of
from recover.workloads.patches import DELETE_JOB

__all__ = [
    "FENCE",
    "delay_s",
    "instead_of_start",
    "obstacle",
    "recreated_or_gone",
    "start_delay_s",
    "will_be_recreated",
]

FIRST_FAILURE_S, DELAY_MAX_S = 10.0, 600.0
FENCE = "rekindle-fence-anew"
"""Name of the chart's admission policy on jobs that may be created again, as the API server writes it in a
refusal."""
DELAY_MIN_S = 1.0
"""Shortest wait for which a job is created again."""


def delay_s(ctx: Context) -> float:
    """Returns how long, in seconds, the framework still waits before it creates new pods, because of the
    failures that it has counted.

    The Job controller counts from the end of the last failed pod, suspended or not (measured, 1.36.3).
    """
    wait_s = start_delay_s(_failures(ctx))
    if not wait_s:
        return 0.0
    ended = [
        container.finished_at
        for pod in ctx.world.pods(ctx.gang.ref.uid)
        if pod.phase is PodPhase.FAILED
        for container in pod.containers
        if container.finished_at is not None
    ]
    waited_s = (ctx.now - max(ended)).total_seconds() if ended else 0.0
    left_s = wait_s - max(0.0, waited_s)
    return left_s if left_s >= DELAY_MIN_S else 0.0


def start_delay_s(failures: int) -> float:
    """Returns the delay of the Job controller in seconds, counted from the end of the last failed pod. The
    delay doubles after each further failed pod."""
    return min(FIRST_FAILURE_S * 2 ** min(failures - 1, 6), DELAY_MAX_S) if failures else 0.0


def _failures(ctx: Context) -> int:
    """Returns the number of failed pods that the framework has counted or will count: it may count them a
    second later, and a stop is quicker. Pods that a stop has ended are deleted, and not counted."""
    if not workload_of(ctx.gang).delays_starts:
        return 0
    pods = ctx.world.pods(ctx.gang.ref.uid)
    kept = sum(1 for pod in pods if pod.phase is PodPhase.FAILED and pod.deleting_since is None)
    return max(ctx.gang.failures, kept)


def obstacle(ctx: Context) -> str:
    """Returns why the end of the suspension would not bring back the whole gang at once, or an empty string
    if it would."""
    gang, terminal = ctx.gang, ctx.gang.terminal
    if terminal is not None and not terminal.succeeded:
        return (
            "the framework's controller has marked the job as failed, and this is final "
            f"({terminal.reason or 'it gave no reason'})"
        )
    if gang.done_ranks:
        return (
            f"the framework's controller counts ranks {gang.done_ranks} as completed and creates no other "
            "pods for them"
        )
    left_s = delay_s(ctx)
    if left_s:
        failed = _failures(ctx)
        return (
            f"after {failed} failed pod{'s' if failed != 1 else ''} the framework's controller would "
            f"create new pods only after another {left_s:.0f} s"
        )
    return ""


def will_be_recreated(ctx: Context) -> bool:
    return bool(ctx.gang.definition) and may_recreate(ctx.gang.annotations) and bool(obstacle(ctx))


def instead_of_start(ctx: Context, mark: Mark, environment: tuple[Action, ...]) -> Step | None:
    """Returns the step that takes the place of a start, or None if a start suffices.

    A kept definition is used even if the obstacle has passed. If the job were started with the definition
    still kept, a later deletion by a person would look like Rekindle's own. The definition is replaced if the
    job or the nodes to avoid have changed, and dropped if consent was withdrawn.
    """
    gang, kept = ctx.gang, _kept(ctx.status)
    why = kept.why if kept is not None else obstacle(ctx)
    if not why:
        return None
    fenced = _fenced(ctx)
    if fenced is not None:
        return _started_instead(ctx, fenced) if kept is not None else None
    definition, too_large = _definition(gang, mark)
    if kept is not None and definition == kept.definition:
        return Step(writes=(*environment, _delete(gang)))
    if definition:
        return Step(status=_keeping(ctx, why, definition))
    if kept is not None:
        return Step(status=msgspec.structs.replace(ctx.status, recreation=None))
    if not gang.done_ranks and gang.terminal is None:  # the job only waits
        return None
    message = f"{gang.ref} stays stopped: {why}{too_large}"
    reason = Reason.TERMINAL_JOB if gang.terminal is not None else Reason.RANKS_ENDED
    return Step(
        status=moved(ctx, Phase.ESCALATED, message, reason=reason),
        writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
    )


def _fenced(ctx: Context) -> Refusal | None:
    """Returns the refusal if the chart's policy does not allow this job to be created again, and a start
    suffices. The refusal leaves a gang stopped only if nothing else can start it: a gang that its framework
    merely delays is started."""
    refusal = ctx.refusal_of_job()
    only_waits = ctx.gang.terminal is None and not ctx.gang.done_ranks
    return refusal if refusal is not None and only_waits and FENCE in refusal.words else None


def _started_instead(ctx: Context, refusal: Refusal) -> Step:
    wait_s = delay_s(ctx)
    message = (
        f"Rekindle starts {ctx.gang.ref} and does not create the job again, because an admission policy "
        f"refuses the deletion. The framework's controller creates new pods after another {wait_s:.0f} s. "
        f"The API server's answer: {ctx.words_of(refusal)}"
    )
    status = refitted(
        ctx.status,
        recreation=None,
        reason=Reason.FRAMEWORK_BACKOFF,
        message=message,
        deadline=ctx.now + timedelta(seconds=ctx.allowed_s(ctx.timing.resume_deadline_s) + wait_s),
    )
    return Step(status=status, writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),))


def _kept(status: RecoveryStatus) -> Recreation | None:
    """Returns the job that this attempt will create again and has not created yet."""
    kept = status.recreation
    return kept if kept is not None and kept.definition and kept.attempt == status.attempt else None


def _definition(gang: Gang, mark: Mark) -> tuple[str, str]:
    """Returns the definition of the job to create again. It is empty without consent, or comes with the words
    why the job cannot be created."""
    if not gang.definition or not may_recreate(gang.annotations):
        return "", ""
    definition = msgspec.json.encode(workload_of(gang).recreated(gang, mark)).decode()
    if len(definition) <= DEFINITION_CHARS_MAX:
        return definition, ""
    return "", (
        f"; Rekindle cannot create the job again: the definition has {len(definition)} characters, "
        f"and a Recovery keeps {DEFINITION_CHARS_MAX} at most"
    )


def _keeping(ctx: Context, why: str, definition: str) -> RecoveryStatus:
    recreation = fitted(Recreation, attempt=ctx.status.attempt, why=why, definition=definition)
    message = (
        f"Rekindle deletes {ctx.gang.ref} and creates the job again ({ON_TERMINAL}: recreate), "
        f"because {why}. Until the job runs, status.recreation of this Recovery contains its "
        "definition"
    )
    status = refitted(ctx.status, recreation=recreation, message=message)
    if status.phase is Phase.RESUMING:
        return status
    within_s = ctx.allowed_s(
        ctx.timing.resume_deadline_s
    )  # it was blocked; only the phase Resuming creates a job again
    return moved(ctx, Phase.RESUMING, message, within_s=within_s, status=status)


def _delete(gang: Gang) -> Delete:
    """Returns the deletion of the job. It is a foreground deletion, because pods of fixed names must be gone
    before the new job creates its own. It applies only to the version whose definition is kept: later changes
    of people would be lost."""
    return Delete(
        what=DELETE_JOB,
        resource=gang.resource,
        name=gang.ref.name,
        namespace=gang.ref.namespace,
        uid=gang.ref.uid,
        version=gang.version,
        foreground=True,
    )


def recreated_or_gone(
    recovery: Recovery, gang: Gang | None, world: World, timing: Timing, now: datetime
) -> Step:
    """Returns the step for a job that is gone, or is being deleted. If Rekindle deleted the job, the job is
    created again; otherwise the recovery is over."""
    kept, status = _kept(recovery.status), recovery.status
    if gang is None and _cannot_be_read(recovery, world):
        return Step()
    if kept is None or status.phase is not Phase.RESUMING:
        message = f"{recovery.spec.gang} was deleted"
        ended = _ended(recovery, Phase.FAILED, Reason.JOB_GONE, message, now)
        return Step(status=ended, reads=(_if_gone(recovery),) if gang is None else ())
    if gang is not None:
        return _waiting(recovery, now)
    successor = _successor(recovery, world)
    if successor is None:
        return Step(writes=(_create(recovery, kept),), requeue_after_s=5.0)
    mark = successor.mark
    if mark is None or (mark.recovery, mark.attempt) != (recovery.metadata.name, status.attempt):
        message = (
            f"after Rekindle had deleted {successor.ref} to create the job again, somebody else "
            "created a job of that name"
        )
        return Step(status=_ended(recovery, Phase.ESCALATED, Reason.FOREIGN_OWNER, message, now))
    made = refitted(
        status,
        gang_uid=successor.ref.uid,
        recreation=msgspec.structs.replace(kept, definition=""),
        reason="",
        deadline=now + timedelta(seconds=allowed_s(successor, timing, timing.resume_deadline_s)),
        message=f"Rekindle has created {successor.ref} again, and waits until all {successor.size} ranks run",
    )
    return Step(status=made)


def _cannot_be_read(recovery: Recovery, world: World) -> bool:
    """Whether the job exists but cannot be read, for example because a newer version of its framework wrote
    it."""
    ref = recovery.spec.gang
    workload = workload_if_known(ref)
    return workload is None or world.is_unread(workload.resource, recovery.metadata.namespace, ref.name)


def _if_gone(recovery: Recovery) -> ConfirmGone:
    """Returns the live read of the job. A watch may be late or broken, so the recovery ends only if a live
    read finds no such job."""
    ref = recovery.spec.gang
    return ConfirmGone(
        what="confirm-job-gone",
        resource=resource_of(ref),
        name=ref.name,
        namespace=recovery.metadata.namespace,
        uid=recovery.gang_uid,
    )


def _waiting(recovery: Recovery, now: datetime) -> Step:
    """Returns the step that waits for the job's deletion. A finalizer may delay the deletion for any time;
    the recovery says so and continues to wait."""
    status = recovery.status
    if status.deadline is None:
        return Step()
    if now < status.deadline:
        return Step(requeue_after_s=max(0.01, (status.deadline - now).total_seconds()))
    message = f"a finalizer delays the deletion of {recovery.spec.gang}, which Rekindle will create again"
    held = refitted(status, reason=Reason.DELETION_HELD, message=message, deadline=None)
    return Step(status=held)


def _successor(recovery: Recovery, world: World) -> Gang | None:
    """Returns the present job of that name, which has a different uid."""
    ref = recovery.spec.gang
    place = (ref.api_version, ref.kind, ref.namespace, ref.name)
    found = (g for g in world.gangs.values() if g.ref.uid != recovery.gang_uid)
    return next(
        (g for g in found if (g.ref.api_version, g.ref.kind, g.ref.namespace, g.ref.name) == place), None
    )


def _create(recovery: Recovery, kept: Recreation) -> Create:
    ref = recovery.spec.gang
    return Create(
        what="recreate-job",
        resource=resource_of(ref),
        name=ref.name,
        namespace=recovery.metadata.namespace,
        body=msgspec.json.decode(kept.definition),
    )


def _ended(recovery: Recovery, phase: Phase, reason: Reason, message: str, now: datetime) -> RecoveryStatus:
    status = recovery.status
    entered = PhaseTime(phase=phase, attempt=status.attempt, at=now)
    return refitted(
        status,
        phase=phase,
        reason=reason,
        message=message,
        deadline=None,
        phases=[*status.phases, entered],
    )
