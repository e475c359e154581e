"""Runs the recovery of a gang: a state machine. Each state from Stopping to Verifying has a deadline. Pure.

    Planned -> Stopping -> Fencing -> Choosing -> Resuming -> Verifying -> Succeeded
                                                             else Escalated | Failed | Blocked

`advance` makes one reconcile of one recovery. The phase is always written before its actions are issued, and
each action leaves a mark on the object that it changes, so a crash at any instant loses nothing and repeats
nothing. The first stop is the exception: triage creates the Recovery in the phase Planned, and the stop is
sent together with the write of the phase Stopping. So a gang may be stopped already while its Recovery still
shows Planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from detectors.wire.fitting import fitted, refitted
from recover.api import ACTIVE_PHASES, Cause, Phase, Recovery
from recover.api.reasons import EventReason, Reason
from recover.diagnose.ranks import losses
from recover.diagnose.starts import ranks
from recover.model import Terminal, World
from recover.model.actions import Action, Plan
from recover.policy.consent import may_recreate, may_write
from recover.policy.settings import Settings
from recover.recovery import scan_pod
from recover.recovery.again import has_run
from recover.recovery.avoid import shown
from recover.recovery.causes import affecting, are_placed, corrected_causes, first_cause, fresh_causes
from recover.recovery.choose import choosing
from recover.recovery.context import Context, Step, bounded, moved, next_attempt, status_patch
from recover.recovery.failed_log import with_failed_log
from recover.recovery.fence import fencing
from recover.recovery.handover import may_read_old, taken_back, taken_back_later
from recover.recovery.past_cordon import placed_past_cordon
from recover.recovery.recreate import recreated_or_gone
from recover.recovery.refused import unless_refused
from recover.recovery.resume import resuming
from recover.recovery.stop import has_lost_rank, planned, stopping, unstuck
from recover.recovery.verify import verifying
from recover.workloads import workload_of

__all__ = ["advance"]

_PHASES: Mapping[Phase, Callable[[Context], Step]] = {
    Phase.PLANNED: planned,
    Phase.STOPPING: stopping,
    Phase.FENCING: fencing,
    Phase.CHOOSING: choosing,
    Phase.RESUMING: resuming,
    Phase.VERIFYING: verifying,
}
_BLOCKED: Mapping[str, Callable[[Context], Step]] = {
    Reason.NEEDS_FENCING_PROOF: fencing,
    Reason.NO_CAPACITY: resuming,
    Reason.RANKS_NOT_STARTED: resuming,
    Reason.FRAMEWORK_SILENT: resuming,
    Reason.HELD: resuming,
    Reason.PODS_STUCK: unstuck,
}
"""For each reason of Blocked, the function that decides whether the recovery continues."""


def advance(recovery: Recovery, world: World, settings: Settings, now: datetime) -> Plan:
    """Returns what to write for this recovery now. The chain begins with the live reads. Then come the writes
    that must be done before the status says that the recovery is over, then the status, then the actions of
    the phase. The first stop is a separate chain."""
    if not recovery.active:
        removals = ((removal,) for removal in _cleanup(recovery, world))
        later = taken_back_later(recovery, world, now)
        return Plan((*removals, *later.chains, _lifted(recovery, world, now)), later.requeue_after_s)
    gang = world.gangs.get(recovery.gang_uid)
    if gang is None or gang.deleting or gang.ref.namespace != recovery.metadata.namespace:
        step = recreated_or_gone(recovery, gang, world, settings.timing, now)
    else:
        ctx = Context(recovery=recovery, gang=gang, world=world, settings=settings, now=now)
        step = _take_up_causes(ctx) or _ended(ctx) or placed_past_cordon(ctx) or _phase(ctx)(ctx)
        step = unless_refused(ctx, step)
        step = _onward(ctx, step)
        step = _with_what_is_avoided(ctx, step)
        step = with_failed_log(ctx, step)
    patch = status_patch(recovery, step.status) if step.status is not None else None
    status: tuple[Action, ...] = (patch,) if patch else ()
    chain: tuple[Action, ...] = (*step.reads, *_undone(recovery, step, world), *status, *step.writes)
    chains = tuple(one for one in (step.stop, chain) if one)
    return Plan(chains, step.requeue_after_s)


def _onward(ctx: Context, step: Step) -> Step:
    """Returns the step. If it enters Choosing and there is nothing to scan, the choice needs no action, so
    the step makes the choice at once: one write then has the phases Choosing and Resuming."""
    if step.status is None or step.status.phase is not Phase.CHOOSING or ctx.status.phase is Phase.CHOOSING:
        return step
    entered = msgspec.structs.replace(ctx.recovery, status=step.status)
    chosen = choosing(msgspec.structs.replace(ctx, recovery=entered))
    is_made = chosen.status is not None and chosen.status.phase is Phase.RESUMING
    return chosen if is_made else step


def _with_what_is_avoided(ctx: Context, step: Step) -> Step:
    """Returns the step. If its status is that of a gang that is stopped, or about to be stopped, the status
    shows the nodes that a start would avoid now."""
    status = step.status
    if status is None or status.phase not in ACTIVE_PHASES or status.phase is Phase.VERIFYING:
        return step
    return msgspec.structs.replace(step, status=shown(ctx, status))


def _undone(recovery: Recovery, step: Step, world: World) -> tuple[Action, ...]:
    """Returns the writes that remove the checkpoint from the ConfigMap that ranks read (handover.py) before
    the recovery is over, however it ends: a crash in between repeats the writes. If the API server refuses
    one of them, the recovery ends nevertheless, and the refused write is tried again later."""
    if step.status is None or step.status.phase in ACTIVE_PHASES:
        return ()
    entered = recovery.status.phases[-1].at if recovery.status.phases else None
    undone = taken_back(recovery)
    refused = (world.refusal(action.resource, action.name, action.namespace) for action in undone)
    is_refused = any(one is not None and entered is not None and one.at >= entered for one in refused)
    return () if is_refused else undone


def _lifted(recovery: Recovery, world: World, now: datetime) -> tuple[Action, ...]:
    """Takes back what the last start of an ended recovery has put into its job. This is checked at each
    reconcile, however long ago the recovery ended, until nothing is left. The marks of the next recovery
    belong to that recovery."""
    gang = world.gangs.get(recovery.gang_uid)
    if gang is None or gang.mark is None or gang.mark.recovery != recovery.metadata.name:
        return ()
    if gang.ref.namespace != recovery.metadata.namespace or world.active_recovery(gang.ref.uid) is not None:
        return ()
    lifts = tuple(workload_of(gang).lift(gang)) if may_write(gang, world, now) else ()
    # A version that did not remove the checkpoint from the ConfigMap may have ended the recovery. Once the
    # mark is removed, that is no longer known.
    return (*lifts, *taken_back(recovery)) if lifts and may_read_old(world, gang) else lifts


def _phase(ctx: Context) -> Callable[[Context], Step]:
    if ctx.status.phase is Phase.BLOCKED:
        return _BLOCKED.get(ctx.status.reason, _left_alone)
    return _PHASES[ctx.status.phase]


def _left_alone(_: Context) -> Step:
    """Does nothing for a recovery that is blocked for a reason that this version does not know."""
    return Step()


def _take_up_causes(ctx: Context) -> Step | None:
    """Takes up later causes: before the resume they join this attempt, afterwards they begin the next
    attempt. A cause that corrects an earlier one, or that is about a node on which no new rank runs, does not
    stop the gang again."""
    fresh, known = fresh_causes(ctx), corrected_causes(ctx)
    if ctx.status.phase is Phase.PLANNED or (not fresh and known == ctx.status.causes):
        return None
    if not ctx.has("resumed"):
        return Step(status=refitted(ctx.status, causes=bounded([*known, *fresh])))
    if ctx.world.modes.paused is not None and not has_lost_rank(ctx):
        return None  # all ranks were started again: another stop waits for the end of the pause
    acting = affecting(ctx, fresh)
    if not acting:
        causes = bounded([*known, *fresh]) if are_placed(ctx) else known
        is_news = causes != ctx.status.causes
        return Step(status=refitted(ctx.status, causes=causes)) if is_news else None
    summary = "; ".join(cause.summary for cause in acting)
    # The gang is stopped even if no attempt is left: `choosing` then ends the recovery and leaves the gang
    # suspended.
    words = f"Rekindle stops all ranks once more: {summary}"
    return Step(status=next_attempt(ctx, fresh, words, counts=has_run(ctx)))


def _ended(ctx: Context) -> Step | None:
    """Ends the recovery of a job that its framework has permanently ended, because that job needs, and
    accepts, nothing more. A job that may be created again is the exception."""
    terminal = ctx.gang.terminal
    if terminal is None or (ctx.status.phase is Phase.VERIFYING and terminal.succeeded):
        return None
    if not terminal.succeeded and may_recreate(ctx.gang.annotations):
        return _failed_again(ctx, terminal)
    if terminal.succeeded:
        message = f"{ctx.gang.ref} has completed"
        return Step(status=moved(ctx, Phase.SUCCEEDED, message, reason=Reason.JOB_COMPLETED))
    message = (
        f"the framework's controller has marked {ctx.gang.ref} as failed, and this is final: "
        f"{terminal.reason} {terminal.message}"
    )
    return Step(
        status=moved(ctx, Phase.ESCALATED, message.strip(), reason=Reason.TERMINAL_JOB),
        writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
    )


def _failed_again(ctx: Context, terminal: Terminal) -> Step | None:
    """Begins another attempt for a job that its framework failed permanently after its start, for example by
    its own deadline. If a rank was lost, triage reports a cause, and that cause begins the attempt."""
    if not ctx.has("resumed") or losses(ctx.world, ranks(ctx.world, ctx.gang), ctx.now):
        return None
    why = (
        "the framework's controller has marked the job as failed, and this is final "
        f"({terminal.reason or 'it gave no reason'})"
    )
    cause = fitted(
        Cause,
        incident=ctx.spec.incident,
        fault=ctx.spec.fault,
        attempt=ctx.status.attempt,
        at=ctx.now,
        summary=why,
        finding=first_cause(ctx).finding,
    )
    words = f"{why}; Rekindle removes its remaining pods"
    return Step(status=next_attempt(ctx, [cause], words, counts=has_run(ctx)))


def _cleanup(recovery: Recovery, world: World) -> tuple[Action, ...]:
    """Returns the deletions of scan pods that their recovery no longer needs."""
    found = scan_pod.of_attempt(world, recovery)
    return tuple(scan_pod.remove(scan) for scan in found if scan.deleting_since is None)
