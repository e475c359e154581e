"""Finds the pods that are ranks of the gang's present start. Pure.

A gang starts again when a recovery, a person or its own framework creates new pods. Pods of an earlier start
may exist for a while beside the new pods, and are no lost ranks of the present start:

| a pod that | belongs to an earlier start if |
|---|---|
| has ended, as a recovery has noted | always (`leftovers`) |
| has ended and exists | it was created before the present start (`_ended_before`) |
| was told to end and has not | the job was resumed since then, by anybody (`_resumed_since`) |
| was told to end and exists | it and all other pods older than the oldest pod that stays were told to end |
| | before that pod was created (`_replaced`) |
| was deleted and no longer exists | it was deleted before the pods that run were created (`departed`) |
| is gone, and its deletion was missed | it started before the pods that run were created (`departed`) |

A pod that nobody can end keeps its place in the gang: the third and the fourth rule do not apply to it.
"""

from __future__ import annotations

from collections.abc import Collection

from recover.diagnose.goes_on import CLOCKS_APART
from recover.model import DEPARTED_MAX, Gang, Pod, World

__all__ = ["departed", "leftover", "new_pods", "nodes_without_devices", "ranks"]


def ranks(world: World, gang: Gang) -> list[Pod]:
    """Returns the pods of the present start, including those that have since been deleted."""
    pods = new_pods(world, gang)
    return [*pods, *departed(world, gang, pods)]


def nodes_without_devices(world: World, pods: Collection[Pod]) -> list[str]:
    """Returns the nodes of these pods on which no pod is known to use an accelerator. Anyone who may create a
    pod may write the name of any node into it, so the name proves nothing: the node must exist, or its
    kubelet must have reported the pod's containers."""
    named = {pod.node for pod in pods if pod.node}
    held = {pod.node for pod in pods if pod.accelerators and (pod.containers or _is_accelerated(world, pod))}
    return sorted(named - held)


def _is_accelerated(world: World, pod: Pod) -> bool:
    node = world.nodes.get(pod.node)
    return node is not None and node.is_accelerated


def new_pods(world: World, gang: Gang) -> list[Pod]:
    """Returns the existing pods of the present start, sorted by name. The result does not depend on the
    time."""
    uid, known = gang.ref.uid, world.new_pods_memo
    if known is None or world.gangs.get(uid) is not gang:
        return _new_pods(world, gang)
    if uid not in known:
        known[uid] = _new_pods(world, gang)
    return known[uid]


def _new_pods(world: World, gang: Gang) -> list[Pod]:
    noted = _noted(world, gang)
    pods = [pod for pod in world.pods(gang.ref.uid) if leftover(pod) not in noted]
    pods = [pod for pod in pods if not (_ended_before(pod, gang) or _resumed_since(world, pod, gang))]
    replaced = _replaced(world, pods)
    return sorted((pod for pod in pods if pod.uid not in replaced), key=lambda pod: pod.name)


def departed(world: World, gang: Gang, pods: list[Pod]) -> list[Pod]:
    """Returns the deleted pods of the present start that no longer exist. `pods` are the existing pods.
    Returns none if no existing pod lives: the framework then creates the whole gang again by itself."""
    if gang.ref.uid not in world.departed:
        return []
    noted = _noted(world, gang)
    oldest = min((p.created for p in pods if p.created and not p.ended), default=None)
    if oldest is None:
        return []
    gone = [
        pod
        for pod in world.departed.get(gang.ref.uid, {}).values()
        if pod.namespace == gang.ref.namespace
        and leftover(pod) not in noted
        and (until := pod.was_rank_until) is not None
        and oldest <= until
    ]
    # Kubernetes writes whole seconds. Of the pods that were deleted in the second in which the oldest
    # existing pod was created, only those that were created in that second, too, are ranks of the present
    # start. If at least as many pods as the gang has ranks were deleted in that second, or as many as are
    # remembered, they all belong to an earlier start: the framework has created the whole gang again.
    in_one_second = [pod for pod in gone if pod.was_rank_until == oldest]
    is_whole = len(in_one_second) >= min(gang.size, DEPARTED_MAX)
    no_peers = [pod.uid for pod in in_one_second if is_whole or pod.created != oldest]
    return [pod for pod in gone if pod.uid not in no_peers]


def leftover(pod: Pod) -> str:
    """Returns the note by which a recovery remembers an ended pod that its job keeps: the beginning of the
    pod's uid. A time would not do, because clocks need not agree."""
    return pod.uid[:8]


def _noted(world: World, gang: Gang) -> set[str]:
    return {left for r in world.history(gang.ref.uid) for left in r.status.leftovers}


def _ended_before(pod: Pod, gang: Gang) -> bool:
    """Whether the pod ended in an earlier start. A large job creates its first pods some seconds before its
    status shows the start."""
    if not pod.ended or pod.created is None or gang.started_at is None:
        return False
    return pod.created < gang.started_at - CLOCKS_APART


def _resumed_since(world: World, pod: Pod, gang: Gang) -> bool:
    at = pod.deleting_since
    if at is None or pod.ended or not _can_be_ended(world, pod):
        return False
    return gang.is_resuming or (gang.resumed_at is not None and at <= gang.resumed_at)


def _replaced(world: World, pods: list[Pod]) -> set[str]:
    """Returns the uids of the pods that are older than all pods that stay, if every one of them was told to
    end before the oldest pod that stays was created. No rank has outlived such pods, so their framework has
    started the gang again."""
    if all(pod.deleting_since is None for pod in pods):
        return set()
    stay = (pod for pod in pods if not pod.ended and pod.deleting_since is None)
    staying = min((pod.created for pod in stay if pod.created), default=None)
    if staying is None:
        return set()
    older = [pod for pod in pods if pod.created and pod.created < staying]
    for pod in older:
        if pod.deleting_since is None or pod.deleting_since > staying or not _can_be_ended(world, pod):
            return set()
    return {pod.uid for pod in older}


def _can_be_ended(world: World, pod: Pod) -> bool:
    """Whether the kubelet of the pod's node can end the pod. A pod on a silent node may stay permanently, and
    so may its place in the gang."""
    node = world.nodes.get(pod.node)
    return not pod.node or (node is not None and node.ready)
