"""Runs the phase Fencing: frees the pods of dead nodes, each pod after a proof that it can no longer run or
write. Pure.

A proof is a new boot of the node, the out-of-service taint, or the pod's end. A silent node, or a missing
Node object, proves nothing by itself. Without a proof, Rekindle gives up a pod after a while only if a second
writer cannot damage the pod's volumes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.fitting import refitted
from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.k8s.kinds import NODES, PODS
from recover.model import Pod, PodPhase, VolumeKind
from recover.model.actions import Action, ConfirmGone, Patch
from recover.recovery.context import Context, Step, moved
from recover.recovery.stop import given_up, old_pods_ended, removed, stuck_words

__all__ = ["fencing"]

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
"""Kinds of volumes that a second writer cannot damage: volumes that are shared by design, such as NFS, or
local to their node."""


def fencing(ctx: Context) -> Step:
    """Frees the pods of dead nodes, each pod after a proof that it can no longer run or write."""
    if not ctx.gang.suspended and ctx.gang.terminal is None:
        message = f"{ctx.somebody()} has started {ctx.gang.ref} again while a node was fenced"
        return Step(status=given_up(ctx, message, ctx.undone()))
    living = ctx.remaining()
    if not living:
        return Step(status=old_pods_ended(ctx))
    writes: list[Action] = []
    unproven: list[Pod] = []
    for pod in living:
        if ctx.is_lost(pod) and (pod.ended or _proof(ctx, pod)):
            writes += [*_still_gone(ctx, pod), *_freed(pod)]
        else:
            unproven.append(pod)
    if writes:
        return Step(writes=tuple(writes))
    requeue_after_s = _requeue_after_s(ctx, unproven)
    if ctx.status.phase is not Phase.BLOCKED and not ctx.expired():
        return Step(requeue_after_s=requeue_after_s)
    silent = [pod for pod in unproven if not _reports(ctx, pod)]
    message = _words(ctx, silent) if silent else stuck_words(ctx, unproven)
    if ctx.status.phase is Phase.BLOCKED and silent:
        status = refitted(ctx.status, message=message) if message != ctx.status.message else None
        return Step(status=status, requeue_after_s=requeue_after_s)
    reason = Reason.NEEDS_FENCING_PROOF if silent else Reason.PODS_STUCK
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=reason),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
        requeue_after_s=requeue_after_s,
    )


def _requeue_after_s(ctx: Context, unproven: list[Pod]) -> float | None:
    """Returns the seconds until the deadline, or until time alone becomes a proof."""
    moments = [_given_up_at(ctx, pod) for pod in unproven if ctx.is_lost(pod) and _harms_nobody(pod)]
    waits = [(moment - ctx.now).total_seconds() for moment in moments if moment > ctx.now]
    left_s = ctx.left_s()
    return min([*waits, *([left_s] if left_s is not None else [])], default=None)


def _reports(ctx: Context, pod: Pod) -> bool:
    """Whether the pod's node reports, possibly again, so that its kubelet can end the pod. Nobody needs to
    switch off such a machine."""
    node = ctx.node_of(pod)
    return not pod.node or (node is not None and node.ready)


def _words(ctx: Context, silent: list[Pod]) -> str:
    nodes = ", ".join(sorted({pod.node for pod in silent}))
    words = f"{nodes}: nothing proves that the machine is off, so its pods may still write to their volumes. "
    gone = next((pod for pod in silent if ctx.world.has_no_node(pod.node)), None)
    if gone is None:
        return (
            f"{words}Switch the machine off, then put the taint "
            f"{_OUT_OF_SERVICE}=nodeshutdown:NoExecute on the Node"
        )
    return (
        f"{words}The Node object is gone, which proves nothing. Make sure that the machine is off, "
        f"then: kubectl -n {gone.namespace} delete pod {gone.name} --force"
    )


def _proof(ctx: Context, pod: Pod) -> str:
    """Returns why the pod can no longer run, or an empty string if nothing proves that."""
    node = ctx.node_of(pod)
    if node is None:
        return _proof_without_node(ctx, pod)
    if any(taint.key == _OUT_OF_SERVICE for taint in node.taints):
        return "the node has the out-of-service taint"
    boots = {
        incident.spec.boot_id
        for cause in ctx.status.causes
        if (incident := ctx.world.incidents.get(cause.incident)) is not None
        and incident.spec.node == pod.node
        and pod.created is not None
        and incident.spec.detected_at >= pod.created  # an older Incident may be of a boot before the pod's
    }
    if node.boot_id and any(boot and boot != node.boot_id for boot in boots):
        return "the node has booted again"
    if _harms_nobody(pod) and ctx.now >= _given_up_at(ctx, pod):
        return (
            f"the node has been silent for {ctx.timing.fence_wait_s:g} s, and the pod has no volume "
            "that a second writer could damage"
        )
    return ""


def _proof_without_node(ctx: Context, pod: Pod) -> str:
    """Returns the proof for a pod whose Node object is gone. A missing Node object proves no more than a node
    that is not ready: anybody may delete the object, and the kubelet and its containers continue to run."""
    if not ctx.world.has_no_node(pod.node) or not _harms_nobody(pod) or ctx.now < _given_up_at(ctx, pod):
        return ""
    return (
        f"the Node object has been gone for {ctx.timing.fence_wait_s:g} s, and the pod has no "
        "volume that could be corrupted"
    )


def _harms_nobody(pod: Pod) -> bool:
    return all(volume.kind in _SAFE_VOLUMES for volume in pod.volumes)


def _given_up_at(ctx: Context, pod: Pod) -> datetime:
    """Returns when silence alone suffices as a proof for a pod that harms nobody. Nobody knows when a missing
    node disappeared, so its silence counts from the beginning of this phase."""
    node = ctx.node_of(pod)
    begun = next((one.at for one in reversed(ctx.status.phases) if one.phase is Phase.FENCING), ctx.now)
    silent_since = node.ready_since if node is not None and node.ready_since is not None else begun
    return silent_since + timedelta(seconds=ctx.timing.fence_wait_s)


def _still_gone(ctx: Context, pod: Pod) -> list[Action]:
    """Returns a live read of the Node if the absence of the Node is the proof: the machine may be back."""
    if not ctx.world.has_no_node(pod.node):
        return []
    return [ConfirmGone(what="confirm-node-gone", resource=NODES, name=pod.node)]


def _freed(pod: Pod) -> list[Action]:
    """Returns the actions that mark the pod as failed and then remove it. A Job would count a pod that
    vanishes while it runs as still running."""
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
                        "message": "the machine is proven to be off",
                    }
                },
            )
        )
    return [*actions, removed(pod, grace_s=0)]
