"""Resuming: the whole gang starts elsewhere, once, and nothing of the old one lives any more. Pure."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from recover.actions import Ensure
from recover.api import Phase
from recover.diagnose.ranks import new_pods
from recover.model import Gang, Pod, PodPhase
from recover.phases import known
from recover.phases.context import Context, Step, moved, remove_scans
from recover.phases.recreate import instead_of_start
from recover.reasons import EventReason, Reason
from recover.resources import CONFIGMAPS
from recover.workloads import workload_of
from recover.workloads.patches import environment_name

__all__ = ["resuming"]


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
            writes=remove_scans(ctx),
        )
    if ctx.expired() and ctx.status.phase is not Phase.BLOCKED:
        return _no_capacity(ctx, pods, running)
    return Step(writes=remove_scans(ctx), look_again_s=ctx.left_s())


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
        return Step(look_again_s=ctx.left_s())
    mark = ctx.mark("resumed", _to_avoid(ctx), known.placed(ctx))
    environment = _environment(ctx, gang)
    instead = instead_of_start(ctx, mark, environment)
    if instead is not None:
        return instead
    parts = ctx.world.parts(gang)
    if not workload_of(gang).startable(gang, parts):
        return _not_startable(ctx)
    if ctx.expired():
        return _not_taken(ctx)
    return Step(writes=(environment, *workload_of(gang).start(gang, mark, parts)))


def _not_taken(ctx: Context) -> Step:
    """It is refused each time, or we have not run for so long; it is tried on and on."""
    within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
    message = (
        f"the start of {ctx.gang.ref}, or ConfigMap {environment_name(ctx.gang)} before it, was not taken "
        f"within {within_s:g} s, and is tried again; the controller's log has the API server's words"
    )
    status = msgspec.structs.replace(
        ctx.status,
        reason=Reason.START_REFUSED,
        message=message[:1024],
        deadline=ctx.now + timedelta(seconds=within_s),
    )
    return Step(status=status, writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),))


def _not_startable(ctx: Context) -> Step:
    """It goes on by itself as soon as the framework's controller has done its part."""
    if not ctx.expired():
        return Step(look_again_s=ctx.left_s())
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
