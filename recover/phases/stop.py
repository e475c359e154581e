"""Planned, Stopping, Fencing: until nothing of the old attempt runs any more. Pure."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from recover import scan_pod
from recover.actions import Action, ConfirmGone, Delete, Patch
from recover.api import Phase, RecoveryStatus
from recover.capacity import priority_of
from recover.guard import Denied, may_touch
from recover.model import Pod, PodPhase, VolumeKind
from recover.phases.avoid import to_avoid
from recover.phases.causes import first_cause
from recover.phases.context import REFUSED_AGAIN_S, Context, Step, moved, taken
from recover.reasons import EventReason, Reason
from recover.resources import NODES, PODS
from recover.workloads import workload_of

__all__ = ["fencing", "planned", "stopping"]

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SAFE_VOLUMES = frozenset(
    {
        VolumeKind.NFS,
        VolumeKind.HOST_PATH,
        VolumeKind.EMPTY_DIR,
        VolumeKind.CONFIG_MAP,
        VolumeKind.SECRET,
        VolumeKind.PROJECTED,
        VolumeKind.DOWNWARD_API,
    }
)
"""A second writer on these harms nothing that another node could write."""


def planned(ctx: Context) -> Step:
    """Asks once more whether the gang may be touched: people may have said no since."""
    verdict = may_touch(ctx.world, ctx.gang, ctx.now)
    if isinstance(verdict, Denied):
        return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))
    cause = first_cause(ctx)
    status = msgspec.structs.replace(
        ctx.status,
        causes=[cause],
        priority=priority_of(ctx.world, ctx.gang),
    )
    message = f"stopping all {ctx.gang.size} ranks: {cause.summary}"
    within_s = ctx.allowed_s(ctx.timing.stop_deadline_s)
    return Step(status=moved(ctx, Phase.STOPPING, message, within_s=within_s, status=status))


def stopping(ctx: Context) -> Step:
    """Stops the gang once, by its framework's uncounted way, then waits until the old pods have ended."""
    gang, workload = ctx.gang, workload_of(ctx.gang)
    if gang.terminal is not None:
        return _cleared(ctx)
    if not ctx.has("stopped"):
        if gang.suspended:
            return Step(
                status=moved(
                    ctx, Phase.FAILED, f"{gang.ref} was suspended by {ctx.somebody()}", reason=Reason.HELD
                )
            )
        verdict = may_touch(ctx.world, gang, ctx.now)
        if isinstance(verdict, Denied):
            return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))
        refusal = ctx.refusal(gang.ref.name)
        if ctx.expired() or not ctx.is_told(refusal):
            return _not_taken(ctx)
        if pause_s := ctx.pause_s(refusal):
            return Step(look_again_s=pause_s)
        before = gang.mark
        mark = ctx.mark("stopped", ())
        if before is not None:
            mark = ctx.mark("stopped", before.avoided, before.placed, before.suspected)
        writes = (*workload.stop(gang, mark), *(_beside(ctx) if workload.stops_at_once else ()))
        return Step(writes=writes, look_again_s=REFUSED_AGAIN_S if refusal is not None else None)
    if not gang.suspended:
        message = f"{ctx.somebody()} has started {gang.ref} again right after it was stopped"
        return Step(status=_given_up(ctx, message, ctx.undone()))
    rest = workload.unfinished(gang)
    if rest and ctx.expired():
        return _not_taken(ctx)
    if rest:
        return Step(writes=(*rest, *_beside(ctx)), look_again_s=ctx.left_s())
    if ctx.status.reason:
        message = f"the stop of {gang.ref} was taken; waiting until all {gang.size} ranks have ended"
        return Step(status=taken(ctx, message, within_s=ctx.timing.stop_deadline_s))
    return _waited(ctx)


def _beside(ctx: Context) -> tuple[Action, ...]:
    """Goes with the last write of a stop, which must not wait for it: the gated scan, and the word of it."""
    gated = ctx.settings.scheduling_gates
    off = to_avoid(ctx.gang, ctx.world, ctx.now)
    scan = scan_pod.create(ctx.recovery, ctx.gang, ctx.world, ctx.settings, off) if gated else None
    told = ctx.event(EventReason.RECOVERY_STARTED, ctx.status.message)
    return (*((scan,) if scan else ()), told)


def _not_taken(ctx: Context) -> Step:
    """The stop is refused, or nobody answers, as a webhook whose server is gone; it is tried on and on."""
    within_s, refusal = ctx.timing.stop_deadline_s, ctx.refusal(ctx.gang.ref.name)
    if refusal is not None:
        reason = Reason.STOP_REFUSED
        message = f"the stop of {ctx.gang.ref} is refused, and is tried again: {ctx.words_of(refusal)}"
    else:
        reason = Reason.FRAMEWORK_SILENT
        message = (
            f"the stop of {ctx.gang.ref} was not taken within {within_s:g} s, and is tried again: does its "
            "framework's controller run, which answers for its webhooks too?"
        )
    status = msgspec.structs.replace(
        ctx.status,
        reason=reason,
        message=message[:1024],
        deadline=ctx.now + timedelta(seconds=within_s),
    )
    return Step(status=status, writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),))


def _cleared(ctx: Context) -> Step:
    """Its framework has failed the job for good, and heeds no stop: what is left of it is removed."""
    verdict = may_touch(ctx.world, ctx.gang, ctx.now)
    if isinstance(verdict, Denied):
        return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))
    left = [pod for pod in ctx.living() if pod.deleting_since is None]
    if left:
        return Step(writes=tuple(_removed(pod) for pod in left))
    return _waited(ctx)


def _waited(ctx: Context) -> Step:
    living = ctx.remaining()
    if not living:
        return Step(status=_ended(ctx))
    if all(ctx.is_lost(pod) for pod in living):
        nodes = ", ".join(sorted({pod.node for pod in living}))
        message = f"{len(living)} pod(s) remain on {nodes}, which nobody hears from"
        return Step(status=moved(ctx, Phase.FENCING, message, within_s=ctx.timing.fence_wait_s))
    if ctx.expired():
        names = ", ".join(f"{pod.name} on {pod.node}" for pod in living[:5])
        message = f"{len(living)} pod(s) have not ended in time, and {ctx.gang.ref} stays suspended: {names}"
        return Step(
            status=_given_up(ctx, message, Reason.PODS_STUCK),
            writes=(ctx.event(EventReason.RECOVERY_FAILED, message, warning=True),),
        )
    return Step(look_again_s=ctx.left_s())


def fencing(ctx: Context) -> Step:
    """Frees the pods of dead nodes, each on a proof that nothing of it can still run or write."""
    if not ctx.gang.suspended and ctx.gang.terminal is None:
        message = f"{ctx.somebody()} has started {ctx.gang.ref} again while a node was fenced"
        return Step(status=_given_up(ctx, message, ctx.undone()))
    living = ctx.remaining()
    if not living:
        return Step(status=_ended(ctx))
    writes: list[Action] = []
    unproven: list[Pod] = []
    for pod in living:
        if ctx.is_lost(pod) and (pod.ended or _proof(ctx, pod)):
            writes += [*_still_gone(ctx, pod), *_freed(pod)]
        else:
            unproven.append(pod)
    if writes:
        return Step(writes=tuple(writes))
    if ctx.status.phase is Phase.BLOCKED or not ctx.expired():
        return Step(look_again_s=ctx.left_s())
    nodes = ", ".join(sorted({pod.node for pod in unproven}))
    message = (
        f"{nodes}: no proof that the machine is off, and its pods may still write to their volumes. "
        f"Power it off, then taint it {_OUT_OF_SERVICE}=nodeshutdown:NoExecute or delete the Node object"
    )
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=Reason.NEEDS_FENCING_PROOF),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
    )


def _given_up(ctx: Context, message: str, reason: Reason) -> RecoveryStatus:
    """The gang is stopped, and a person starts it, or has: the pods of before are no news then."""
    status = msgspec.structs.replace(ctx.status, leftovers=ctx.leftovers())
    return moved(ctx, Phase.ESCALATED, message, reason=reason, status=status)


def _ended(ctx: Context) -> RecoveryStatus:
    message = "all old pods have ended; choosing the checkpoint"
    return moved(ctx, Phase.CHOOSING, message, within_s=ctx.timing.scan_deadline_s)


def _proof(ctx: Context, pod: Pod) -> str:
    """Why nothing of that pod can still run; empty where nothing proves it."""
    if ctx.world.has_no_node(pod.node):
        return "its Node object is gone"
    node = ctx.node_of(pod)
    if node is None:
        return ""
    if any(taint.key == _OUT_OF_SERVICE for taint in node.taints):
        return "its node is marked out of service"
    boots = {
        incident.spec.boot_id
        for cause in ctx.status.causes
        if (incident := ctx.world.incidents.get(cause.incident)) is not None
        and incident.spec.node == pod.node
        and pod.created is not None
        and incident.spec.detected_at >= pod.created  # an older incident may tell of a boot before the pod's
    }
    if node.boot_id and any(boot and boot != node.boot_id for boot in boots):
        return "its node has booted again"
    waited = node.ready_since is not None and ctx.now >= node.ready_since + timedelta(
        seconds=ctx.timing.fence_wait_s
    )
    if waited and all(volume.kind in _SAFE_VOLUMES for volume in pod.volumes):
        return f"its node has been silent for {ctx.timing.fence_wait_s:g} s and it holds no volume of its own"
    return ""


def _still_gone(ctx: Context, pod: Pod) -> list[Action]:
    """Where the absence of the Node is the proof, it is read once more: the machine may be back."""
    if not ctx.world.has_no_node(pod.node):
        return []
    return [ConfirmGone(what="confirm-node-gone", resource=NODES, name=pod.node)]


def _freed(pod: Pod) -> list[Action]:
    """Failed first, then removed: a Job would count a pod that vanishes while it runs as still running."""
    actions: list[Action] = []
    if pod.phase is not PodPhase.FAILED:
        actions.append(
            Patch(
                what="fail-pod",
                resource=PODS,
                name=pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                subresource="status",
                body={
                    "status": {
                        "phase": "Failed",
                        "reason": "NodeLost",
                        "message": "its node is proven to be off",
                    }
                },
            )
        )
    return [*actions, _removed(pod, grace_s=0)]


def _removed(pod: Pod, grace_s: int | None = None) -> Delete:
    return Delete(
        what="free-pod",
        resource=PODS,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        grace_s=grace_s,
    )
