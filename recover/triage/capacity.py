"""Estimates whether a whole gang fits on the nodes that it may use now. Pure. The estimate is made before a
start, and before a stop that only makes sense if there is a better place.

The estimate is optimistic: it never says that a gang does not fit where the scheduler could place it. Only
accelerators are counted, because the cache does not keep pods without accelerators. Everything unknown counts
as fitting: a resource that no node reports, a template whose number of ranks is not known, rules between
pods, volumes. Ranks that begin only when others have succeeded use the places of those others. Sources:
kube-scheduler's filter plugins NodeResourcesFit, NodeAffinity, TaintToleration, NodeUnschedulable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from recover.api import Requirement, Toleration
from recover.api.marks import UNHEALTHY
from recover.model import Gang, Mark, Node, Pod, Taint, Template, World
from recover.model.tolerations import of_pods, of_resources, tolerates, written
from recover.recipes.placement import carries
from recover.triage.quarantine import out_words
from recover.triage.reserved import RESERVED_S, Request, places_of, request_of, reserved
from recover.triage.spare_node import SPARE
from recover.workloads.patches import REQUIRED, avoiding, required_terms

__all__ = ["Room", "may_use", "priority_of", "remembered", "room"]

T = TypeVar("T")

RULES_MAX = 5000
"""Length of a gang's rules about nodes beyond which the gang counts as fitting. Each reconcile compares the
rules with each node, and one job must not delay the reconciles of all other jobs."""
ENDING_S = 180.0
"""Time within which a deleted pod has to end so that a start does not wait for it. A deleted pod occupies its
accelerators until it has ended. The time equals the default of `timing.stop_deadline_s`."""
LOWEST_PRIORITY = -(2**31)
_TEMPLATE, _REQUIREMENT = 30, 10
"""Lengths of a template and of a requirement of its affinity, in units of the length of one value."""
_SIZES_MAX = 4
"""Number of different requests of a gang up to which the ranks with a larger request count beside those with
a smaller one. The cost grows with the square of the number, and a job rarely has more roles with devices."""
_PARTS = ("matchExpressions", "matchFields")
_NAMED_MAX = 8
_KEPT_NAMED_MAX = 4
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
    """Nodes that have the resources that a rank requests and cannot take the rank, each with the reason. The
    nodes that have too few devices at all come last."""
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
        named = "; ".join(f"{name}: {why}" for name, why in self.out[:_NAMED_MAX])
        more = len(self.out) - _NAMED_MAX
        named += f"; and {more} more" if more > 0 else ""
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
    world: World,
    gang: Gang,
    now: datetime,
    *,
    without: Mapping[str, str] = {},
    placed: Sequence[Requirement] = (),
    priority: int | None = None,
    tolerations: Sequence[Toleration] = (),
    kept_s: float = RESERVED_S,
    beside: Collection[str] = (),
) -> Room:
    """Returns the estimate for all ranks of the gang at once. The places that the gang's own pods use now
    count as free.

    `without` has the nodes that the gang must not use, each with the reason. `placed` has the requirements of
    recipes on the nodes. `priority` and `tolerations` are those of the gang's pods, for a time when the pods
    are gone. `kept_s` is the time after its start during which another gang keeps its places. `beside` has
    the uids of other gangs that are being restarted: their pods do not count, and each of their ranks needs a
    place.
    """
    if _length(gang) > RULES_MAX:
        return Room()
    reported = remembered(world, "reported", lambda: _reported(world))
    others = frozenset(beside) - {gang.ref.uid}
    asked = _Asked(gang, without, tuple(placed), priority, tuple(tolerations), others)
    found = [
        _less_kept(
            needs,
            {
                **reserved(world, gang, request, reported, now, kept_s),
                **places_of(world, gang, others, request, reported),
            },
        )
        for request, needs in _known_needs(world, asked, reported, now)
    ]
    return max(found, key=lambda one: (one.lacking, one.missing), default=Room())


def remembered(world: World, key: Hashable, find: Callable[[], T]) -> T:
    """Returns the result of `find`, which may depend on Nodes and pods only, and remembers it until one of
    them changes. Many gangs may ask at each reconcile, and the answer needs all nodes."""
    memo = world.capacity_memo
    if memo is None:
        return find()
    if key not in memo:
        memo[key] = find()
    found: T = memo[key]
    return found


def _reported(world: World) -> frozenset[str]:
    """Returns the names of all resources of which a node has some."""
    return frozenset(name for node in world.nodes.values() for name in node.capacity)


_Needs = list[tuple[Request, Room]]


class _Asked(msgspec.Struct, frozen=True):
    """The arguments of `room`, which explains them."""

    gang: Gang
    without: Mapping[str, str]
    placed: tuple[Requirement, ...]
    priority: int | None
    tolerations: tuple[Toleration, ...]
    beside: frozenset[str]

    @property
    def key(self) -> Hashable:
        """Returns the key of the memo: the uid of the gang, and all other arguments."""
        rest = (self.placed, self.priority, self.tolerations)
        return self.gang.ref.uid, frozenset(self.without.items()), self.beside, repr(rest)


def _known_needs(world: World, asked: _Asked, reported: Collection[str], now: datetime) -> _Needs:
    """Returns the needs (`_needs`), from the World's memo if the memo has them. What is found while a pod is
    being deleted is not remembered: time alone may change whether the pod counts."""
    memo, key = world.capacity_memo, asked.key
    known = memo.get(key) if memo is not None else None
    if known is not None and known[0] is asked.gang:
        needs: _Needs = known[1]
        return needs
    needs = _needs(world, asked, reported, now)
    is_timeless = remembered(world, "timeless", lambda: not _is_any_deleted(world))
    if memo is not None and is_timeless:
        memo[key] = asked.gang, needs
    return needs


def _is_any_deleted(world: World) -> bool:
    return any(pod.deleting_since is not None for pods in world.pods_of.values() for pod in pods.values())


def _needs(world: World, asked: _Asked, reported: Collection[str], now: datetime) -> _Needs:
    """Returns the room for the ranks with each request, as if no place were kept for other gangs."""
    gang = asked.gang
    start = Mark(recovery="", attempt=1, did="", placed=asked.placed)
    groups: dict[tuple[Request, int], list[tuple[Template, int]]] = {}
    for name, template in gang.templates.items():
        request = request_of(template, reported)
        count = template.count or (gang.size if len(gang.templates) == 1 else 0)
        if request and count:
            groups.setdefault((request, _stage(gang, name)), []).append((template, count))
    first = asked.priority if asked.priority is not None else priority_of(world, gang)
    used = _used(world, {gang.ref.uid, *asked.beside}, first, now) if groups else {}
    added = written([*asked.tolerations, *of_pods(world, gang)])
    rules = {
        (request, stage): [
            (_Rules.of(one, gang, start, [*added, *of_resources(name for name, _ in request)]), count)
            for one, count in ranks
        ]
        for (request, stage), ranks in groups.items()
    }
    found: _Needs = []
    for (request, stage), ranks in rules.items():
        larger = [
            (rule, max(0, count - gang.may_lack) * times)
            for (other, at), others in rules.items()
            if at == stage and len(rules) <= _SIZES_MAX and (times := _times(other, request))
            for rule, count in others
        ]
        found.append((request, _room_of(world.nodes.values(), request, ranks, larger, asked.without, used)))
    return found


def may_use(gang: Gang, node: Node) -> bool:
    """Whether the node selector and the affinity of the gang allow the node for ranks that request devices
    which the node has. Taints, and pods that run there, do not matter here."""
    if _length(gang) > RULES_MAX:
        return True
    start = Mark(recovery="", attempt=1, did="")
    asking = [template for template in gang.templates.values() if request_of(template, node.capacity)]
    return not asking or any(_Rules.of(template, gang, start, ()).suits(node) for template in asking)


def _less_kept(found: Room, kept: Mapping[str, int]) -> Room:
    """Returns the room that is left after the places that are kept for other gangs."""
    missing = min(found.size, max(found.lacking, found.size + sum(kept.values()) - found.places))
    return msgspec.structs.replace(found, missing=missing, kept_for=tuple(kept.items()) if missing else ())


def _room_of(
    nodes: Iterable[Node],
    request: Request,
    ranks: Sequence[tuple[_Rules, int]],
    larger: Sequence[tuple[_Rules, int]],
    without: Mapping[str, str],
    used: Mapping[str, Mapping[str, int]],
) -> Room:
    """Returns the room for the ranks of all templates with the same request: the rules of each template come
    with the number of its ranks. `larger` has the templates whose ranks need several of these places on one
    node, each with the number of places. Neither one template nor all templates together may lack places."""
    rules = [*ranks, *larger]
    places, short = 0, [count for _, count in rules]
    out: list[tuple[str, str]] = []
    small: list[tuple[str, str]] = []
    in_use = 0
    for node in nodes:
        suited = [index for index, (rule, _) in enumerate(rules) if rule.suits(node)]
        if not suited or not all(node.capacity.get(name, 0) for name, _ in request):
            continue
        if not _slots(node.capacity, request):
            small.append((node.name, _too_few(node.capacity, request)))
            continue
        whys = {index: _why_out(node, rules[index][0], without, request) for index in suited}
        if all(whys.values()):
            out.append((node.name, whys[suited[0]]))
            continue
        slots = _slots(_free(node, used), request)
        in_use += not slots
        places += slots
        short = [left - (0 if whys.get(i, "-") else slots) for i, left in enumerate(short)]
    size, wanted = sum(count for _, count in ranks), sum(count for _, count in rules)
    lacking = min(size, max(0, wanted - places, *short))
    return Room(
        missing=lacking,
        lacking=lacking,
        places=places - (wanted - size),
        size=size,
        request=", ".join(f"{name}: {n}" for name, n in request),
        out=(*sorted(out), *sorted(small)),
        in_use=in_use,
    )


def _free(node: Node, used: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    taken = used.get(node.name)
    if not taken:
        return node.allocatable
    return {name: n - taken.get(name, 0) for name, n in node.allocatable.items()}


# --- what the ranks ask for -------------------------------------------------------------------------------


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


def _length(gang: Gang) -> int:
    """Returns the length of the templates' required affinity. Tolerations and selectors do not count:
    tolerations are compared only with distinct taints, and the comparison of a selector reads at most one key
    more than those that the node has."""
    total = 0
    for template in gang.templates.values():
        total += _TEMPLATE
        for term in required_terms(template.affinity):
            total += _REQUIREMENT
            for part in _PARTS:
                total += sum(_REQUIREMENT + len(one.get("values") or ()) for one in term.get(part) or ())
    return total


class _Rules(msgspec.Struct, frozen=True):
    """The nodes that the ranks of one template may use by the template itself, without the changes that
    Rekindle made to the template."""

    tolerations: tuple[Mapping[str, object], ...]
    selector: Mapping[str, str]
    terms: tuple[tuple[list[Requirement], list[Requirement]], ...] | None
    """Terms on the labels and fields of a node; one of the terms must match."""
    tolerated: dict[tuple[str, str, str], bool] = {}
    """Results for the taints that were compared so far. Most nodes have the same taints."""

    @classmethod
    def of(cls, template: Template, gang: Gang, start: Mark, added: Sequence[Mapping[str, object]]) -> _Rules:
        affinity = avoiding(template.affinity, gang, start).get("nodeAffinity") or {}
        required = affinity.get(REQUIRED)
        terms = tuple(map(_term, required.get("nodeSelectorTerms", ()))) if required else None
        return cls((*template.tolerations, *added), template.node_selector, terms)

    def tolerates(self, taint: Taint) -> bool:
        parts = (taint.key, taint.value, taint.effect)
        if parts not in self.tolerated:
            self.tolerated[parts] = tolerates(self.tolerations, taint)
        return self.tolerated[parts]

    def suits(self, node: Node) -> bool:
        if any(node.labels.get(name) != value for name, value in self.selector.items()):
            return False
        return self.terms is None or any(
            (labels or fields)  # an empty term matches no node
            and carries(node.labels, labels)
            and carries({"metadata.name": node.name}, fields)
            for labels, fields in self.terms
        )


def _term(term: Mapping[str, object]) -> tuple[list[Requirement], list[Requirement]]:
    return _requirements(term, "matchExpressions"), _requirements(term, "matchFields")


def _requirements(term: Mapping[str, object], part: str) -> list[Requirement]:
    found = term.get(part)
    return [
        Requirement(
            key=str(one["key"]),
            operator=str(one["operator"]),
            values=[str(v) for v in one.get("values") or ()],
        )
        for one in (found if isinstance(found, list) else [])
    ]


# --- what a node offers -----------------------------------------------------------------------------------


def _why_out(node: Node, rules: _Rules, without: Mapping[str, str], request: Request) -> str:
    """Returns why the node takes no rank, whatever pods run there. Returns an empty string if the node may
    take a rank."""
    if node.name in without:
        return without[node.name]
    if not node.ready:
        return "not ready"
    if not _slots(node.allocatable, request):
        short = next((name for name, n in request if node.allocatable.get(name, 0) < n), request[0][0])
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


def _times(other: Request, request: Request) -> int:
    """Returns how many places with the request one rank with the other request takes at least, if it is a
    larger one for the same devices. Returns 0 otherwise."""
    if len(other) != 1 or len(request) != 1 or other[0][0] != request[0][0] or other == request:
        return 0
    return other[0][1] // request[0][1]


def _slots(offered: Mapping[str, int], request: Request) -> int:
    return min(max(0, offered.get(name, 0)) // n for name, n in request)


def _used(
    world: World, restarted: Collection[str], priority: int | None, now: datetime
) -> dict[str, dict[str, int]]:
    """Returns the accelerators that the pods of other gangs than the `restarted` ones use, by node and
    resource. Pods that end soon, and pods that the scheduler would evict for this gang, do not count. If the
    gang's priority is not known, no pod counts, because the scheduler might evict any of them."""
    found: dict[str, dict[str, int]] = {}
    for uid, pods in world.pods_of.items() if priority is not None else ():
        for pod in pods.values() if uid not in restarted else ():
            if pod.node and pod.requests and _holds(pod, priority, now):
                there = found.setdefault(pod.node, {})
                for name, n in pod.requests:
                    there[name] = there.get(name, 0) + n
    return found


def _holds(pod: Pod, priority: int | None, now: datetime) -> bool:
    is_evictable = priority is None or pod.priority < priority
    return not is_evictable and not pod.ended and not _ends_soon(pod, now)


def _ends_soon(pod: Pod, now: datetime) -> bool:
    """Whether the pod is being deleted and must end soon. The pod's owner chooses how long the pod may take
    to end, and the pod may ignore the signal. A pod that has not ended long after its time is stuck, for
    example in the driver of a device."""
    if pod.deleting_since is None:
        return False
    return pod.deleting_until is None or abs(pod.deleting_until - now) <= timedelta(seconds=ENDING_S)


def priority_of(world: World, gang: Gang) -> int | None:
    """Returns the priority of the gang's pods, or the lowest priority if no pod is evicted for them. Returns
    None if the pods are gone and only the name of their priority class is known."""
    known = [pod.priority if pod.preempts else LOWEST_PRIORITY for pod in world.pods(gang.ref.uid)]
    if known:
        return max(known)
    return None if any(template.priority_class for template in gang.templates.values()) else 0
