"""Finds pods that still run on a node and whose work a repair would end. Pure.

A repair waits for these pods and never evicts them. Before a reset, pods count that use accelerators, and the
pod of a step that was withdrawn. Before a reboot, all pods count that would lose work. Pods of DaemonSets do
not count, because they come back by themselves. Neither do mirror pods, which belong to the kubelet, nor
ended pods, which have nothing to lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recover.api.marks import REPAIR_OF
from recover.api.repair_state import StepKind
from recover.model import Gang, Node, Pod, World
from recover.policy.consent import OptIn, opt_in

__all__ = ["BACK_AFTER_A_REBOOT", "named", "occupants", "opted_in_gangs"]

BACK_AFTER_A_REBOOT = frozenset({"DaemonSet", "Node"})
"""Owners whose pods come back by themselves with their node; mirror pods are owned by the Node."""
_NAMED_MAX = 3


def occupants(world: World, node: Node, rung: StepKind, namespace: str) -> list[str]:
    """Returns `namespace/name` of each pod for which the step `rung` must wait, in order. `namespace` is our
    own: repair pods in that namespace are ours."""
    found = {
        f"{pod.namespace}/{pod.name}" for pod in _pods(world, node) if _counts(pod, node, rung, namespace)
    }
    if rung is StepKind.REBOOT:
        found |= {
            f"{other.namespace}/{other.name}"
            for other in world.bystanders.get(node.name, {}).values()
            if node.ready or not other.deleting
        }
    return sorted(found)


def opted_in_gangs(world: World, node: Node, rung: StepKind, namespace: str) -> Iterator[Gang]:
    """Yields the gangs that have opted in to automatic recovery and have a pod on the node for which the step
    must wait: these gangs can be moved."""
    for gang in world.gangs_living_on(node.name):
        there = world.pods_at(gang.ref.uid, node.name)
        is_in_the_way = any(_counts(pod, node, rung, namespace) for pod in there)
        if is_in_the_way and opt_in(gang, world.namespaces.get(gang.ref.namespace)) is OptIn.ENABLED:
            yield gang


def named(pods: Iterable[str]) -> str:
    every = list(pods)
    more = f" and {len(every) - _NAMED_MAX} more" if len(every) > _NAMED_MAX else ""
    return ", ".join(every[:_NAMED_MAX]) + more


def _pods(world: World, node: Node) -> Iterator[Pod]:
    yield from world.pods_bound_to(node.name)
    yield from (scan for scan in world.scans.values() if scan.node == node.name)


def _counts(pod: Pod, node: Node, rung: StepKind, namespace: str) -> bool:
    if pod.ended:
        return False
    if REPAIR_OF in pod.labels and pod.namespace == namespace:
        return rung is StepKind.RESET  # pod of a withdrawn step: never two resets at once
    if not node.ready and pod.deleting_since is not None:
        return False  # Kubernetes has given it up with its silent node, so a repair takes nothing
    if rung is StepKind.RESET:
        return pod.may_hold_devices
    return pod.owner_kind not in BACK_AFTER_A_REBOOT
