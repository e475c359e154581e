"""Resuming and Verifying: the gang starts elsewhere, and only its own new steps prove that it did. Pure."""

from __future__ import annotations

import msgspec

from detectors.contract import Fault, PodProgress
from recover import scan_pod
from recover.accounting import last_step, lost_gpu_s, lost_steps, totals
from recover.actions import Action, Ensure
from recover.api import Cause, Phase, RecoveryStatus
from recover.diagnose.ranks import new_pods
from recover.guard import attempts_limit
from recover.model import Gang, Pod, PodPhase
from recover.phases import known
from recover.phases.context import Context, Step, condition, moved, next_attempt
from recover.phases.recreate import instead_of_start
from recover.reasons import EventReason, Reason
from recover.resources import CONFIGMAPS
from recover.workloads import workload_of
from recover.workloads.patches import environment_name

__all__ = ["resuming", "verifying"]


def resuming(ctx: Context) -> Step:
    """Writes the environment, starts the gang once, then waits until every rank runs."""
    gang = ctx.gang
    if not ctx.has("resumed"):
        return _start(ctx)
    if gang.suspended:
        message = f"{ctx.somebody()} has suspended {gang.ref} right after it was started"
        return Step(status=moved(ctx, Phase.ESCALATED, message, reason=ctx.undone()))
    pods = ctx.living()
    ended = sum(1 for p in new_pods(ctx.world, ctx.gang) if p.phase is PodPhase.SUCCEEDED)
    running = sum(1 for p in pods if p.phase is PodPhase.RUNNING)
    if running and running + ended >= gang.size:
        message = f"all {gang.size} ranks run; waiting for the first new step"
        return Step(
            status=moved(ctx, Phase.VERIFYING, message, within_s=ctx.timing.verify_deadline_s),
            writes=_remove_scan(ctx),
        )
    if ctx.expired() and ctx.status.phase is not Phase.BLOCKED:
        return _no_capacity(ctx, pods, running)
    return Step(writes=_remove_scan(ctx), look_again_s=_left(ctx))


def _start(ctx: Context) -> Step:
    gang = ctx.gang
    if not gang.suspended and gang.terminal is None:
        message = f"{ctx.somebody()} has started {gang.ref} before its checkpoint was chosen"
        return Step(status=moved(ctx, Phase.ESCALATED, message, reason=ctx.undone()))
    living = ctx.remaining()
    if living and ctx.expired():
        names = ", ".join(f"{pod.name} on {pod.node or 'no node'}" for pod in living[:5])
        message = f"{len(living)} old pod(s) live again or still, and nothing is started over them: {names}"
        return Step(
            status=moved(ctx, Phase.ESCALATED, message, reason=Reason.PODS_STUCK),
            writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
        )
    if living:
        return Step(look_again_s=_left(ctx))
    mark = ctx.mark("resumed", _to_avoid(ctx), known.placed(ctx))
    environment = _environment(ctx, gang)
    instead = instead_of_start(ctx, mark, environment)
    if instead is not None:
        return instead
    parts = ctx.world.parts(gang)
    if not workload_of(gang).startable(gang, parts):
        return _not_startable(ctx)
    return Step(writes=(environment, *workload_of(gang).start(gang, mark, parts)))


def _not_startable(ctx: Context) -> Step:
    """It goes on by itself as soon as the framework's controller has done its part."""
    if not ctx.expired():
        return Step(look_again_s=_left(ctx))
    message = f"the controller of {ctx.gang.ref} has not prepared it for a start: does it run?"
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=Reason.FRAMEWORK_SILENT),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
    )


def _to_avoid(ctx: Context) -> tuple[str, ...]:
    """The nodes that the gang must not come back to and that no NoSchedule taint of ours keeps it from."""
    tolerant = any(
        t.get("operator") == "Exists" and not t.get("key")
        for template in ctx.gang.templates.values()
        for t in template.tolerations
    )
    out = {
        n.name
        for n in ctx.world.nodes.values()
        if n.quarantine is not None and n.quarantine.cordoned and not tolerant
    }
    by_people = _excluded_by_people(ctx.gang)
    return tuple(name for name in ctx.status.avoid_nodes if name not in out and name not in by_people)


def _excluded_by_people(gang: Gang) -> set[str]:
    """Nodes that every template keeps out without us; what is theirs must not become ours to undo."""
    excluded = [set(template.avoided) for template in gang.templates.values()]
    everywhere = set.intersection(*excluded) if excluded else set()
    return everywhere - set(gang.mark.avoided if gang.mark else ())


def _environment(ctx: Context, gang: Gang) -> Ensure:
    """What the ranks are told: REKINDLE_RESUME_FROM and _STEP only of a checkpoint that was verified, and
    what known issues need."""
    choice = ctx.status.checkpoint
    verified = choice is not None and choice.verified
    data: dict[str, str | None] = known.handed_over(ctx) | {
        "REKINDLE_RECOVERY": ctx.recovery.metadata.name,
        "REKINDLE_RESUME_FROM": choice.path if choice is not None and verified else None,
        "REKINDLE_RESUME_STEP": str(choice.step) if choice is not None and verified else None,
    }
    name = environment_name(gang)
    return Ensure(
        what="write-environment",
        resource=CONFIGMAPS,
        name=name,
        namespace=gang.ref.namespace,
        body={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": gang.ref.namespace},
            "data": data,
        },
    )


def _no_capacity(ctx: Context, pods: list[Pod], running: int) -> Step:
    why = next((p.unschedulable for p in pods if p.unschedulable), "its pods have not started")
    kept_off = f" (kept off {', '.join(ctx.status.avoid_nodes)})" if ctx.status.avoid_nodes else ""
    message = f"{running} of {ctx.gang.size} ranks run{kept_off}: {why}. It goes on as soon as there is room"
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=Reason.NO_CAPACITY),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
    )


def verifying(ctx: Context) -> Step:
    """The first step that any new rank prints proves the resume, and tells from where it began."""
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
            return Step(look_again_s=unknown_s)
        return Step(status=_succeeded(ctx, first), writes=_told(ctx, first))
    if ctx.expired():
        return _no_steps(ctx)
    return Step(writes=_remove_scan(ctx), look_again_s=_left(ctx))


def _last_step_unknown(ctx: Context, first: PodProgress) -> float | None:
    """Seconds to wait for the old ranks' last step, which their agents tell when the pods have ended; None if
    it is known, or will not come."""
    if _last_step(ctx) is not None or not ctx.recovery.witnesses:
        return None
    left = ctx.timing.settle_s - (ctx.now - (first.first_step_at or first.at)).total_seconds()
    return left if left > 0 else None


def _last_step(ctx: Context) -> int | None:
    known = (ctx.status.last_step, last_step(ctx.world, ctx.recovery))
    return max((step for step in known if step is not None), default=None)


def _first_step(ctx: Context) -> PodProgress | None:
    """Of a living rank: all old ones had ended before the start, so no clock is needed to tell them apart."""
    made = [
        progress
        for pod in ctx.living()
        if (progress := ctx.world.progress(pod)) is not None
        and progress.first_step is not None
        and not progress.tail
    ]
    return min(made, key=lambda p: (p.first_step_at or p.at, p.name), default=None)


def _succeeded(ctx: Context, first: PodProgress | None) -> RecoveryStatus:
    if first is None or first.first_step is None:
        message = f"{ctx.gang.ref} has completed before its first new step was seen"
        return moved(ctx, Phase.SUCCEEDED, message, reason=Reason.JOB_COMPLETED)
    at = first.first_step_at or first.at
    last = _last_step(ctx)
    steps = lost_steps(last, first.first_step)
    gpu_s = lost_gpu_s(ctx.spec, at, steps, first.median_step_s)
    reason, words = _judged(ctx, first.first_step)
    changed = known.verified(ctx, stepped=True)
    status = msgspec.structs.replace(
        ctx.status,
        last_step=last,
        resumed_step=first.first_step,
        lost_steps=steps,
        lost_gpu_s=gpu_s,
        totals=totals(ctx.world.history(ctx.gang.ref.uid), ctx.recovery, steps, gpu_s),
        conditions=condition(ctx, "ProgressVerified", good=True, reason=reason, message=words, among=changed),
    )
    return moved(ctx, Phase.SUCCEEDED, words, reason=reason if reason != "Resumed" else "", status=status)


def _judged(ctx: Context, first: int) -> tuple[str, str]:
    """By the first new step: about checkpoint + 1 is right; lower is older, or from scratch."""
    choice = ctx.status.checkpoint
    seen = f"{ctx.gang.ref} trains again: first new step {first}"
    if choice is None or choice.step is None or first > choice.step:
        return "Resumed", seen
    if first <= 1 < choice.step:
        return Reason.RESUMED_FROM_SCRATCH, f"{seen}; it did not load {choice.path} and began from scratch"
    return Reason.RESUMED_OLDER, f"{seen}; it began before the chosen step {choice.step} ({choice.path})"


def _told(ctx: Context, first: PodProgress) -> tuple[Action, ...]:
    assert first.first_step is not None
    _, words = _judged(ctx, first.first_step)
    return (ctx.event(EventReason.RECOVERY_SUCCEEDED, words),)


def _no_steps(ctx: Context) -> Step:
    """Another attempt where steps could be read before; otherwise a person must look."""
    limit = attempts_limit(ctx.gang, ctx.settings.budgets)
    waited = f"no step within {ctx.timing.verify_deadline_s:g} s of the start"
    if ctx.status.last_step is not None and ctx.status.attempt < limit:
        cause = Cause(
            incident=ctx.spec.incident,
            fault=Fault.HANG,
            attempt=ctx.status.attempt,
            at=ctx.now,
            summary=waited,
        )
        return Step(status=next_attempt(ctx, [cause], f"{waited}; stopping all ranks once more"))
    message = f"{waited}, after {ctx.status.attempt} attempt(s): a person must look at {ctx.gang.ref}"
    status = msgspec.structs.replace(
        ctx.status,
        conditions=condition(ctx, "ProgressVerified", good=False, reason=Reason.NO_STEPS, message=message),
    )
    return Step(
        status=moved(ctx, Phase.ESCALATED, message, reason=Reason.NO_STEPS, status=status),
        writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
    )


def _remove_scan(ctx: Context) -> tuple[Action, ...]:
    scan = ctx.world.scans.get(f"{ctx.gang.ref.namespace}/{scan_pod.scan_name(ctx.recovery)}")
    return (scan_pod.remove(scan),) if scan is not None and scan.deleting_since is None else ()


def _left(ctx: Context) -> float | None:
    if ctx.status.deadline is None:
        return None
    return max(0.01, (ctx.status.deadline - ctx.now).total_seconds())
