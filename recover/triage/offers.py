"""Groups the nodes by what they offer to the ranks of a gang: their devices, and all that decides whether the
ranks may use the devices. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from recover.model import Node, Pod, World
from recover.model.node_groups import NodeGroups
from recover.triage.reserved import Request

__all__ = ["ENDING_S", "Asked", "Offer", "free_slots", "offer_of", "offers", "slots"]

ENDING_S = 180.0
"""Time within which a deleted pod has to end so that a start does not wait for it. A deleted pod occupies its
accelerators until it has ended. The time equals the default of `timing.stop_deadline_s`."""

Amounts = tuple[int, ...]
"""The number of devices of each resource of the request, in the order of the request."""


class Asked(msgspec.Struct, frozen=True):
    """The question of ranks to the nodes. The groups of the nodes are the same for equal questions."""

    request: Request
    labels: tuple[str, ...]
    """Names of the labels that the rules of the ranks read."""
    by_name: bool
    """Whether the rules read the names of nodes."""
    priority: int | None
    """Priority of the ranks: pods of lower priority make room for them. None: the priority is not known, and
    all pods might make room."""


class Offer(msgspec.Struct, frozen=True):
    """The offer of a node to ranks with one request. Nodes with equal offers are alike for these ranks."""

    name: str
    """Empty if the rules read no names."""
    labels: tuple[str | None, ...]
    ready: bool
    unschedulable: bool
    taints: tuple[tuple[str, str, str], ...]
    """Key, value and effect of each taint."""
    capacity: Amounts
    allocatable: Amounts
    left: Amounts
    """The allocatable devices without those that pods use."""
    deleted: tuple[tuple[datetime, Amounts], ...]
    """Deleted pods that have not ended: the time until which each may run, and the devices that it uses.
    These devices are contained in `left`."""


def offers(world: World, asked: Asked) -> NodeGroups:
    """Returns the nodes by their offer. Nodes that lack one of the resources are under the key None."""
    return world.grouped(asked, lambda node: offer_of(node, asked, world.pods_bound_to(node.name)))


def offer_of(node: Node, asked: Asked, pods: Iterable[Pod]) -> Offer | None:
    """Returns what the node offers if these pods use its devices. Returns None if the node lacks one of the
    resources."""
    names = [name for name, _ in asked.request]
    if not all(node.capacity.get(name, 0) for name in names):
        return None
    used, deleted = [0] * len(names), []
    for pod in pods:
        if pod.ended or not pod.requests or _is_evictable(pod, asked.priority):
            continue
        amounts = dict(pod.requests)
        takes = tuple(amounts.get(name, 0) for name in names)
        if pod.deleting_since is None:
            used = [one + more for one, more in zip(used, takes, strict=True)]
        elif pod.deleting_until is not None:
            deleted.append((pod.deleting_until, takes))
    allocatable = tuple(node.allocatable.get(name, 0) for name in names)
    return Offer(
        name=node.name if asked.by_name else "",
        labels=tuple(node.labels.get(label) for label in asked.labels),
        ready=node.ready,
        unschedulable=node.unschedulable,
        taints=tuple((taint.key, taint.value, taint.effect) for taint in node.taints),
        capacity=tuple(node.capacity[name] for name in names),
        allocatable=allocatable,
        left=tuple(n - taken for n, taken in zip(allocatable, used, strict=True)),
        deleted=tuple(sorted(deleted)),
    )


def free_slots(offer: Offer, request: Request, now: datetime) -> int:
    """Returns the number of ranks for which the offer has free devices."""
    stuck = [takes for until, takes in offer.deleted if not _ends_soon(until, now)]
    left = [n - sum(taken) for n, *taken in zip(offer.left, *stuck, strict=True)]
    return slots(left, request)


def slots(amounts: Sequence[int], request: Request) -> int:
    """Returns the number of ranks with that request for which the devices suffice."""
    return min(max(0, amount) // n for amount, (_, n) in zip(amounts, request, strict=True))


def _is_evictable(pod: Pod, priority: int | None) -> bool:
    """Whether the scheduler might evict the pod for the ranks."""
    return priority is None or pod.priority < priority


def _ends_soon(until: datetime, now: datetime) -> bool:
    """Whether a pod that was deleted must end soon. The pod's deleter chooses how long the pod may take to
    end, and the pod may ignore the signal. A pod that has not ended long after its time is stuck, for example
    in the driver of a device."""
    return abs(until - now) <= timedelta(seconds=ENDING_S)
