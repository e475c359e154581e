"""Estimates whether a whole gang fits on the nodes that it may use now. Pure. The estimate is made before a
start, and before a stop that only makes sense if there is a better place.

The estimate is optimistic: it never says that a gang does not fit where the scheduler could place it. Only
accelerators are counted, because the cache does not keep pods without accelerators. Everything unknown counts
as fitting: a resource that no node reports, a template whose number of ranks is not known, rules between
pods, volumes. Ranks that begin only when others have succeeded use the places of those others. Sources:
kube-scheduler's filter plugins NodeResourcesFit, NodeAffinity, TaintToleration, NodeUnschedulable.

The nodes are counted in groups (offers.py). Only the nodes on which the gang itself runs, and those that it
must not use, are counted one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from heapq import nsmallest

import msgspec

from recover.api import Requirement, Toleration
from recover.api.marks import UNHEALTHY
from recover.model import Gang, Mark, Node, Taint, World
from recover.model.tolerations import of_pods, of_resources, written
from recover.triage.node_rules import NodeRules, are_too_long
from recover.triage.offers import Asked, Offer, Supply, free_slots, nodes_of, slots
from recover.triage.quarantine import out_words
from recover.triage.reserved import RESERVED_S, Request, places_of, request_of, reserved
from recover.triage.spare_node import SPARE

__all__ = ["LOWEST_PRIORITY", "Room", "may_use", "priority_of", "room"]

LOWEST_PRIORITY = -(2**31)
"""Priority for which no pod is evicted."""
_SIZES_MAX = 4
"""Number of different requests of a gang up to which the ranks with a larger request count beside those with
a smaller one. The cost grows with the square of the number, and a job rarely has more roles with devices."""
_NAMED_MAX = 8
_KEPT_NAMED_MAX = 4
_NO_START = Mark(recovery="", attempt=1, did="")
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class Room(msgspec.Struct, frozen=True):
    """The places for a gang's ranks: how many are missing, and the nodes that would have had them."""

    missing: int = 0
    """Number of ranks without a place, if places that are kept for other gangs count as taken."""
    lacking: int = 0
    """Number of ranks that would lack a place even if no place were kept for other gangs."""
    places: int = 0
    """Number of places for ranks with that request."""
    size: int = 0
    """Number of all ranks of the gang with that request."""
    request: str = ""
    """Request of one such rank, for example `nvidia.com/gpu: 8`."""
    out: tuple[tuple[str, str], ...] = ()
    """The first nodes that have the resources that a rank requests and cannot take the rank, each with the
    reason. The nodes that have too few devices at all come last."""
    out_more: int = 0
    """Number of further such nodes."""
    in_use: int = 0
    """Number of nodes that could take a rank if other pods did not use their accelerators."""
    kept_for: tuple[tuple[str, int], ...] = ()
    """Gangs that are being restarted, each with the places that are kept for it."""

    @property
    def fits(self) -> bool:
        return not self.missing

    @property
    def words(self) -> str:
        """Describes the places that are lacking even without those kept for other gangs, or else the places
        that are kept. The text about lacking places changes only with the number of ranks and the nodes that
        are out."""
        if not self.lacking:
            return self.kept_words
        ranks = f"{self.lacking} of {self.size} ranks" if self.size > 1 else "the rank"
        verb = "have" if self.lacking > 1 else "has"
        named = "; ".join(f"{name}: {why}" for name, why in self.out)
        named += f"; and {self.out_more} more" if self.out_more else ""
        return (f"{ranks} {verb} no place ({self.request} each)") + (
            f". Nodes that the job cannot use: {named}" if named else ""
        )

    @property
    def kept_words(self) -> str:
        kept = ", ".join(f"{ranks} for {name}" for name, ranks in self.kept_for[:_KEPT_NAMED_MAX])
        more = len(self.kept_for) - _KEPT_NAMED_MAX
        kept += f" and others for {more} more" if more > 0 else ""
        return f"places are reserved for gangs that are being restarted ({kept})"


def room(
    supply: Supply,
    gang: Gang,
    now: datetime,
    *,
    without: Mapping[str, str] = {},
    placed: Sequence[Requirement] = (),
    priority: int | None = None,
    tolerations: Sequence[Toleration] = (),
    kept_s: float = RESERVED_S,
) -> Room:
    """Returns the estimate for all ranks of the gang at once. The places that the gang's own pods use now
    count as free. So do those of the gangs that are gone from the supply: they are being restarted, and each
    of their ranks needs a place.

    `without` has the nodes that the gang must not use, each with the reason. `placed` has the requirements of
    recipes on the nodes. `priority` and `tolerations` are those of the gang's pods, for a time when the pods
    are gone. `kept_s` is the time after its start during which another gang keeps its places.
    """
    if are_too_long(gang):
        return Room()
    world, reported = supply.world, _reported(supply.world)
    first = priority if priority is not None else priority_of(world, gang)
    found = []
    for need in _needs(world, gang, placed, tolerations, reported):
        tally = _counted(supply, need, first, without, gang.ref.uid, now)
        rivals = reserved(world, gang, need.request, reported, now, kept_s)
        rivals |= places_of(world, gang, supply.gone, need.request, reported)
        taken = {name: min(one.places, tally.usable_by(one.gang, reported)) for name, one in rivals.items()}
        kept_for = tuple((name, one.places) for name, one in rivals.items() if taken[name])
        found.append(_less_kept(tally.room(), sum(taken.values()), kept_for))
    return max(found, key=lambda one: (one.lacking, one.missing), default=Room())


def may_use(gang: Gang, node: Node) -> bool:
    """Whether the node selector and the affinity of the gang allow the node for ranks that request devices
    which the node has. Taints, and pods that run there, do not matter here."""
    if are_too_long(gang):
        return True
    asking = [template for template in gang.templates.values() if request_of(template, node.capacity)]
    return not asking or any(NodeRules.of(template, gang, _NO_START, ()).suits(node) for template in asking)


def priority_of(world: World, gang: Gang) -> int | None:
    """Returns the priority of the gang's pods, or the lowest priority if no pod is evicted for them. Returns
    None if the pods are gone and only the name of their priority class is known."""
    known = [pod.priority if pod.preempts else LOWEST_PRIORITY for pod in world.pods(gang.ref.uid)]
    if known:
        return max(known)
    return None if any(template.priority_class for template in gang.templates.values()) else 0


def _reported(world: World) -> frozenset[str]:
    """Returns the names of all resources of which a node has some."""
    groups = world.grouped("resources", lambda node: tuple(node.capacity))
    return frozenset(name for group in groups.groups for name in group.key)  # type: ignore[attr-defined]


def _less_kept(found: Room, taken: int, kept_for: tuple[tuple[str, int], ...]) -> Room:
    """Returns the room that is left after other gangs have taken that number of places. `kept_for` has the
    places that each of these gangs needs, here or on other nodes."""
    missing = min(found.size, max(found.lacking, found.size + taken - found.places))
    return msgspec.structs.replace(found, missing=missing, kept_for=kept_for if missing else ())


# --- what the ranks ask for -------------------------------------------------------------------------------


class _Need(msgspec.Struct, frozen=True):
    """The ranks with one request that run at the same time."""

    request: Request
    ranks: list[tuple[NodeRules, int]]
    """The rules of each template, with the number of its ranks."""
    larger: list[tuple[NodeRules, int]]
    """The templates whose ranks need several places of this request on one node, each with the number of
    places."""

    @property
    def size(self) -> int:
        return sum(count for _, count in self.ranks)


def _needs(
    world: World,
    gang: Gang,
    placed: Sequence[Requirement],
    tolerations: Sequence[Toleration],
    reported: Collection[str],
) -> list[_Need]:
    start = msgspec.structs.replace(_NO_START, placed=tuple(placed))
    added = [*tolerations, *of_pods(world, gang)]
    rules: dict[tuple[Request, int], list[tuple[NodeRules, int]]] = {}
    for name, template in gang.templates.items():
        request = request_of(template, reported)
        count = template.count or (gang.size if len(gang.templates) == 1 else 0)
        if request and count:
            rule = NodeRules.of(template, gang, start, _tolerated(request, added))
            rules.setdefault((request, _stage(gang, name)), []).append((rule, count))
    found = []
    for (request, stage), ranks in rules.items():
        larger = [
            (rule, max(0, count - gang.may_lack) * times)
            for (other, at), others in rules.items()
            if at == stage and len(rules) <= _SIZES_MAX and (times := _times(other, request))
            for rule, count in others
        ]
        found.append(_Need(request, ranks, larger))
    return found


def _tolerated(request: Request, added: Sequence[Toleration]) -> list[Mapping[str, object]]:
    """Returns the tolerations that the ranks' pods have beside those of their template."""
    return [*written(added), *of_resources(resource for resource, _ in request)]


def _stage(gang: Gang, name: str) -> int:
    """Returns how many groups of ranks have to succeed one after the other before the ranks of this template
    begin. Ranks of different stages may use the same places, one after the other. A framework accepts no
    circle of templates; if a job has one nevertheless, the number of templates ends the loop."""
    stage, names = 0, {name}
    while stage < len(gang.templates):
        names = {one for known in names if known in gang.templates for one in gang.templates[known].after}
        if not names & gang.templates.keys():
            break
        stage += 1
    return stage


def _times(other: Request, request: Request) -> int:
    """Returns how many places with the request one rank with the other request takes at least, if it is a
    larger one for the same devices. Returns 0 otherwise."""
    if len(other) != 1 or len(request) != 1 or other[0][0] != request[0][0] or other == request:
        return 0
    return other[0][1] // request[0][1]


# --- what the nodes offer ---------------------------------------------------------------------------------


def _counted(
    supply: Supply, need: _Need, priority: int | None, without: Mapping[str, str], uid: str, now: datetime
) -> _Tally:
    """Counts the places for the ranks of the gang `uid`, as if no place were kept for other gangs."""
    asked, world = Asked(need.request, priority), supply.world
    tally = _Tally(world, need, now)
    single = nodes_of(world, [uid]) | without.keys()
    for offer, names in supply.names(asked).items():
        tally.add(offer, names, but=single)
    for name in single:
        own = supply.offer(name, asked, uid)
        if own is not None:
            tally.add(own, {name}, why=without.get(name, ""))
    return tally


class _Tally:
    """Counts the places for the ranks of one need, group of nodes by group of nodes."""

    def __init__(self, world: World, need: _Need, now: datetime) -> None:
        self._world = world
        self._need = need
        self._now = now
        self._rules = [(rule, rule.suited(world)) for rule, _ in (*need.ranks, *need.larger)]
        self._wanted = [count for _, count in (*need.ranks, *need.larger)]
        self._short = list(self._wanted)
        """Number of places that the ranks of each template lack so far."""
        self._free: list[tuple[int, Set[str]]] = []
        """Groups of nodes with places, each with the number of places on one node."""
        self._in_use = 0
        self._out: dict[str, str] = {}
        """Nodes that take no rank, each with the reason that is the same for its group, if it has one."""
        self._small: list[str] = []

    def add(self, offer: Offer, names: Set[str], *, but: Set[str] = frozenset(), why: str = "") -> None:
        """Counts nodes with the same offer, without the nodes in `but`. With `why` they take no rank, for
        that reason."""
        suited = [names if suits is None else names & suits for _, suits in self._rules]
        every = _union(suited)
        sample = next((name for name in every if name not in but), None)
        if sample is None:
            return
        if not slots(offer.capacity, self._need.request):
            self._small.extend(every - but)
            return
        node = self._world.nodes[sample]
        allowed = [
            frozenset() if why or _why_out(node, rule, self._need.request) else there
            for (rule, _), there in zip(self._rules, suited, strict=True)
        ]
        usable = _union(allowed)
        if len(usable) < len(every):
            self._out |= dict.fromkeys(every - usable - but, why)
        free = free_slots(offer, self._need.request, self._now)
        if not free:  # no set of names is copied, because most nodes of a full cluster are in this group
            self._in_use += len(usable) - len(usable & but)
        elif usable:
            self._free.append((free, usable - but))
            self._short = [
                left - free * len(there - but) for left, there in zip(self._short, allowed, strict=True)
            ]

    def usable_by(self, rival: Gang, reported: Collection[str]) -> int:
        """Returns the number of these places that ranks of the rival could take."""
        added, mine = of_pods(self._world, rival), {name for name, _ in self._need.request}
        rules = []
        for template in rival.templates.values():
            request = request_of(template, reported)
            # The nodes of a group may differ in resources that our ranks do not request.
            shared = tuple((name, n) for name, n in request if name in mine)
            if shared:
                rule = NodeRules.of(template, rival, _NO_START, _tolerated(request, added))
                rules.append((rule, rule.suited(self._world), shared))
        places = 0
        for free, names in ((free, names) for free, names in self._free if names):
            sample = self._world.nodes[next(iter(names))]
            open_to = [suits for rule, suits, request in rules if not _why_out(sample, rule, request)]
            places += free * len(_union([names if suits is None else names & suits for suits in open_to]))
        return places

    def room(self) -> Room:
        """Returns the room. Neither one template nor all templates together may lack places."""
        size, wanted = self._need.size, sum(self._wanted)
        places = sum(free * len(names) for free, names in self._free)
        lacking = min(size, max(0, wanted - places, *self._short))
        nodes = self._world.nodes
        out = [
            (name, self._out[name] or self._first_why(nodes[name]))
            for name in nsmallest(_NAMED_MAX, self._out)
        ]
        small = nsmallest(_NAMED_MAX - len(out), self._small)
        out += [(name, _too_few(nodes[name].capacity, self._need.request)) for name in small]
        return Room(
            missing=lacking,
            lacking=lacking,
            places=places - (wanted - size),
            size=size,
            request=", ".join(f"{name}: {n}" for name, n in self._need.request),
            out=tuple(out),
            out_more=len(self._out) + len(self._small) - len(out),
            in_use=self._in_use,
        )

    def _first_why(self, node: Node) -> str:
        whys = (
            _why_out(node, rule, self._need.request)
            for rule, suits in self._rules
            if suits is None or node.name in suits
        )
        return next(whys)


def _union(sets: Sequence[Set[str]]) -> Set[str]:
    found: Set[str] = frozenset()
    for names in sets:
        found = found | names if found and names else found or names
    return found


def _why_out(node: Node, rules: NodeRules, request: Request) -> str:
    """Returns why the node takes no rank, whatever pods run there. Returns an empty string if the node may
    take a rank."""
    if not node.ready:
        return "not ready"
    short = next((name for name, n in request if node.allocatable.get(name, 0) < n), "")
    if short:
        left, whole = node.allocatable.get(short, 0), node.capacity.get(short, 0)
        return f"only {left} of {whole} {short} are allocatable"
    if node.unschedulable and not rules.tolerates(_UNSCHEDULABLE):
        note = node.quarantine
        return out_words(node, note.fault) if note is not None and note.cordoned else "cordoned"
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not rules.tolerates(taint):
            return _tainted(node, taint)
    return ""


def _too_few(capacity: Mapping[str, int], request: Request) -> str:
    return next(f"has only {capacity[name]} {name}" for name, n in request if capacity[name] < n)


def _tainted(node: Node, taint: Taint) -> str:
    if taint.key == UNHEALTHY:
        return out_words(node, taint.value)
    if taint.key == SPARE:
        return "a spare that is kept free"
    return f"taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
