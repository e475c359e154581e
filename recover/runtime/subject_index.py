"""Keeps the subjects of reconciles (model/subjects.py) while objects are absorbed. The cost of a reconcile
then depends on what is out of the ordinary, not on the size of the cluster.

changes.py reports each change. Everything that a change may concern becomes a subject at once, and stays one
until a check shows that it is ordinary. triage/ordinary.py lists the changes after which each check is made
again. A reconcile before the check therefore sees too much, and never too little. Checks that are due wait in
a queue of questions, and `ask` answers the questions.

A sweep makes the checks of everything again, a few at a time. A subject that the sweep finds missing is a
defect: the sweep counts the defect, logs it, and adds the subject.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec
import structlog

from detectors.wire.contract import NodeHealth
from recover.model import Gang, Node, Pod, Subjects, World
from recover.policy.settings import Timing
from recover.triage.nodehealths import is_spec_current
from recover.triage.ordinary import is_ordinary_gang, is_ordinary_node, is_ordinary_report, is_seen

__all__ = ["SubjectIndex"]

SLICE_S = 0.005
"""Time for questions in one turn of the event loop. The question about one large gang may take longer."""

TOLD_MAX = 10
"""Maximum number of names in one line of the log."""

log = structlog.get_logger(__name__)


class _What(Enum):
    NODE = auto()
    REPORT = auto()
    GANG = auto()
    SPEC = auto()
    """Whether the spec of the node's NodeHealth is up to date, and contains no request to the agent, which
    could become outdated without a change on this node."""
    SIGHT = auto()
    """Whether the node's agent reads all its sources."""


class SubjectIndex:
    def __init__(self, labels: Iterable[str], timing: Timing) -> None:
        """Creates the subjects. `labels` are the labels by whose values accelerator nodes are counted."""
        self._timing = timing
        self._labels = tuple(dict.fromkeys(label for label in labels if label))
        self.nodes: dict[str, Node] = {}
        self.health: dict[str, NodeHealth] = {}
        self.gangs: dict[str, Gang] = {}
        self.outdated_specs: dict[str, Node] = {}
        self.unseen: dict[str, Node] = {}
        self.uncached_nodes: set[str] = set()
        self.counted: Counter[tuple[str, str]] = Counter()
        """World.counted: number of accelerator nodes by label and value."""
        self.new_pods_memo: dict[str, list[Pod]] = {}
        """The same mapping as World.new_pods_memo. A gang's entry is forgotten whenever a new question about
        the gang arises."""
        self._to_ask: OrderedDict[tuple[_What, str], None] = OrderedDict()
        """Open questions, in the order of the changes, with the gang's uid or the node's name. This is no
        plain dict: if tens of thousands of questions wait, finding the first key of a dict whose first keys
        were deleted takes long."""
        self._to_sweep: Iterator[tuple[_What, str]] | None = None
        """The rest of the sweep that is under way."""

    @property
    def subjects(self) -> Subjects:
        return Subjects(
            nodes=self.nodes,
            health=self.health,
            gangs=self.gangs,
            outdated_specs=self.outdated_specs,
            unseen=self.unseen,
            uncached_nodes=self.uncached_nodes,
        )

    # --- what changes -------------------------------------------------------------------------------------

    def node_changed(self, name: str, old: Node | None, new: Node | None, health: NodeHealth | None) -> None:
        for node, count in ((old, -1), (new, 1)):
            if node is not None and node.is_accelerated:
                for key in self._keys(node):
                    self.counted[key] += count
                    if not self.counted[key]:
                        del self.counted[key]
        if new is None or is_ordinary_node(new):
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = new
        self.report_changed(name, new, health)

    def node_renewed(self, node: Node) -> None:
        """Takes a Node of which only the version has changed, as with each kubelet's report. The version
        matters because a write to the Node names it."""
        for subjects in (self.nodes, self.outdated_specs, self.unseen):
            if node.name in subjects:
                subjects[node.name] = node

    def report_changed(self, name: str, node: Node | None, health: NodeHealth | None) -> None:
        if health is None or is_ordinary_report(node, health):
            self.health.pop(name, None)
        else:
            self.health[name] = health
        self.spec_may_change(name, node)
        self.sight_changed(name, node)

    def spec_may_change(self, name: str, node: Node | None) -> None:
        """Asks again whether the spec of the node's NodeHealth is up to date."""
        self._node_to_ask(_What.SPEC, self.outdated_specs, name, node)

    def sight_changed(self, name: str, node: Node | None) -> None:
        """Asks again whether an agent reports from the node, and about which sources."""
        self._node_to_ask(_What.SIGHT, self.unseen, name, node)

    def _node_to_ask(self, what: _What, subjects: dict[str, Node], name: str, node: Node | None) -> None:
        if node is None or not node.is_accelerated:
            subjects.pop(name, None)
        else:
            subjects[name] = node
            self._to_ask[what, name] = None

    def gang_changed(self, uid: str, gang: Gang | None) -> None:
        """Takes a change of the gang, or of something on which its state depends."""
        self.new_pods_memo.pop(uid, None)
        if gang is None:
            self.gangs.pop(uid, None)
        else:
            self.gangs[uid] = gang
            self._to_ask[_What.GANG, uid] = None

    def gang_renewed(self, gang: Gang) -> None:
        """Takes a job of which only the version has changed, as with a framework's own counters."""
        if gang.ref.uid in self.gangs:
            self.gangs[gang.ref.uid] = gang

    def is_subject(self, node: str) -> bool:
        """Whether the Node or its NodeHealth is a subject, so that a decision reads it at each reconcile."""
        return node in self.nodes or node in self.health

    def _keys(self, node: Node) -> Iterator[tuple[str, str]]:
        yield "", ""
        for label in self._labels:
            if label in node.labels:
                yield label, node.labels[label]

    # --- what is asked ------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of questions that wait for an answer."""
        return len(self._to_ask)

    @property
    def has_no_open_question(self) -> bool:
        """Whether no question waits for an answer."""
        return not self._to_ask

    def ask(self, world: World, now: datetime, at_most: int | None = None) -> int:
        """Answers waiting questions, the oldest first, for one slice of time: at least one question if any
        waits, and at most `at_most`. Returns the number of answered questions."""
        asked, ends_s = 0, _now_s() + SLICE_S
        while self._to_ask and (at_most is None or asked < at_most):
            (what, name), _ = self._to_ask.popitem(last=False)
            if self._is_ordinary(what, name, world, now):
                self._of(what).pop(name, None)
            asked += 1
            if _now_s() > ends_s:
                break
        return asked

    def _of(self, what: _What) -> dict[str, Any]:
        match what:
            case _What.NODE:
                return self.nodes
            case _What.REPORT:
                return self.health
            case _What.GANG:
                return self.gangs
            case _What.SPEC:
                return self.outdated_specs
            case _What.SIGHT:
                return self.unseen

    def _is_ordinary(self, what: _What, name: str, world: World, now: datetime) -> bool:
        """Whether the subject is ordinary. A subject that cannot be judged counts as not ordinary, and the
        reconcile reports it."""
        try:
            return _is_ordinary(what, name, world, self._timing, now)
        except Exception:
            log.debug("cannot tell whether it is ordinary", what=what, name=name, exc_info=True)
            return False

    # --- the sweep ----------------------------------------------------------------------------------------

    def sweep(self, world: World, now: datetime) -> tuple[int, bool]:
        """Checks, for one slice of time, everything that is no subject. Returns the number of missing
        subjects and wrong counts, and whether this slice was the last of the sweep. The first slice of a
        sweep also counts the nodes again, and clears `new_pods_memo`, so that the next reconcile fills it
        again."""
        missed, ends_s = 0, _now_s() + SLICE_S
        if self._to_sweep is None:
            self._to_sweep = iter(_all(world))
            self.new_pods_memo.clear()
            missed += self._count_again(world)
        world = msgspec.structs.replace(world, new_pods_memo=None)
        for what, name in self._to_sweep:
            if name not in self._of(what) and not self._is_ordinary(what, name, world, now):
                missed += 1
                kind = what.name.lower()
                log.error(
                    "no decision considered this subject; from now on decisions consider it",
                    what=kind,
                    name=name,
                )
                self._take_up(what, name, world)
            if _now_s() > ends_s:
                return missed, False
        self._to_sweep = None
        return missed, True

    def _count_again(self, world: World) -> int:
        """Counts again what is kept beside the subjects, and corrects it. Returns the number of wrong
        counts."""
        missed = 0
        accelerated = (node for node in world.nodes.values() if node.is_accelerated)
        counted = Counter(key for node in accelerated for key in self._keys(node))
        if counted != self.counted:
            missed += 1
            wrong = sorted(key for key in {*counted, *self.counted} if counted[key] != self.counted[key])
            log.error(
                "the counts of accelerator nodes were wrong, and are corrected now", labels=wrong[:TOLD_MAX]
            )
            self.counted = counted
        uncached_nodes = world.gangs_on.keys() - world.nodes.keys()
        if uncached_nodes != self.uncached_nodes:
            missed += 1
            wrong_names = sorted(uncached_nodes ^ self.uncached_nodes)
            log.error(
                "the names of nodes that are not in the cache were wrong, and are corrected now",
                names=wrong_names[:TOLD_MAX],
            )
            self.uncached_nodes = uncached_nodes
        return missed

    def _take_up(self, what: _What, name: str, world: World) -> None:
        node, health = world.nodes.get(name), world.health.get(name)
        match what:
            case _What.NODE if node is not None:
                self.nodes[name] = node
            case _What.REPORT if health is not None:
                self.health[name] = health
            case _What.GANG:
                self.gang_changed(name, world.gangs.get(name))
            case _What.SPEC:
                self.spec_may_change(name, node)
            case _What.SIGHT:
                self.sight_changed(name, node)


def _now_s() -> float:
    """Returns the time of the running event loop, or of the monotonic clock if none runs. A simulation
    therefore behaves the same on each machine."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def _is_ordinary(what: _What, name: str, world: World, timing: Timing, now: datetime) -> bool:
    """Whether the object is ordinary. An object that is gone is ordinary, too."""
    node = world.nodes.get(name)
    match what:
        case _What.GANG:
            gang = world.gangs.get(name)
            return gang is None or is_ordinary_gang(world, gang, timing, now)
        case _What.REPORT:
            health = world.health.get(name)
            return health is None or is_ordinary_report(node, health)
        case _What.NODE:
            return node is None or is_ordinary_node(node)
        case _What.SPEC:
            return node is None or is_spec_current(world, node)
        case _What.SIGHT:
            return node is None or is_seen(world, node)


def _all(world: World) -> list[tuple[_What, str]]:
    """Returns all questions about the objects of this moment. Later objects belong to the next sweep."""
    found = [(_What.REPORT, name) for name in world.health]
    found += [(what, name) for name in world.nodes for what in (_What.NODE, _What.SPEC, _What.SIGHT)]
    return [*found, *((_What.GANG, uid) for uid in world.gangs)]
