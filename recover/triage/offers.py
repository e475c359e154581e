"""Groups the nodes by what they offer to the ranks of a gang: their devices, and the taints and states that
decide whether the ranks may use the devices. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta

import msgspec

from recover.model import Node, Pod, World
from recover.model.node_groups import NodeGroups
from recover.triage.reserved import Request

__all__ = ["ENDING_S", "Asked", "Offer", "Supply", "free_slots", "nodes_of", "offers", "slots"]

ENDING_S = 180.0
"""Time within which a deleted pod has to end so that a start does not wait for it. A deleted pod occupies its
accelerators until it has ended. The time equals the default of `timing.stop_deadline_s`."""

Amounts = tuple[int, ...]
"""The number of devices of each resource of the request, in the order of the request."""


class Asked(msgspec.Struct, frozen=True):
    """The question of ranks to the nodes. The groups of the nodes are the same for equal questions."""

    request: Request
    priority: int | None
    """Priority of the ranks: pods of lower priority make room for them. None: the priority is not known, and
    all pods might make room."""


class Offer(msgspec.Struct, frozen=True):
    """The offer of a node to ranks with one request. Nodes with equal offers are alike for these ranks."""

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


class Supply:
    """The offers of all nodes of one moment, while the pods of the gangs `gone` do not count."""

    def __init__(self, world: World, gone: Collection[str] = ()) -> None:
        self.world = world
        self.gone = frozenset(gone)
        self._freed = nodes_of(world, self.gone)
        self._known: dict[Asked, dict[Offer, Set[str]]] = {}
        self._groups: dict[Asked, NodeGroups] = {}

    def names(self, asked: Asked) -> Mapping[Offer, Set[str]]:
        """Returns the names of the nodes by offer."""
        if asked not in self._known:
            self._known[asked] = self._found(asked)
        return self._known[asked]

    def _found(self, asked: Asked) -> dict[Offer, Set[str]]:
        groups = self._groups_of(asked)
        freed = self._freed
        found: dict[Offer, Set[str]] = {
            group.key: group.names.keys() - freed if freed else group.names.keys()
            for group in groups.groups
            if isinstance(group.key, Offer)
        }
        again: dict[Offer, set[str]] = {}
        for name in freed:
            offer = self.offer(name, asked)
            if offer is not None:
                again.setdefault(offer, set()).add(name)
        return found | {offer: found.get(offer, frozenset()) | names for offer, names in again.items()}

    def _groups_of(self, asked: Asked) -> NodeGroups:
        if asked not in self._groups:
            self._groups[asked] = offers(self.world, asked)
        return self._groups[asked]

    def offer(self, name: str, asked: Asked, uid: str = "") -> Offer | None:
        """Returns the offer of one node while the pods of the gang `uid` do not count either."""
        node, there = self.world.nodes.get(name), self.world.gangs_on.get(name, frozenset())
        if node is None:
            return None
        if uid not in there and name not in self._freed:
            known = self._groups_of(asked).key(name)
            return known if isinstance(known, Offer) else None
        pods = self.world.pods_bound_to(name)
        return offer_of(node, asked, (p for p in pods if p.owner_uid != uid and p.owner_uid not in self.gone))


def nodes_of(world: World, uids: Iterable[str]) -> set[str]:
    """Returns the names of the nodes on which pods of these gangs are."""
    return {pod.node for uid in uids for pod in world.pods_of.get(uid, {}).values() if pod.node}


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
