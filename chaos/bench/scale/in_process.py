"""Measures the cost of the controller's decisions in a World of a given size, in this process: no API server,
no loops.

The observer absorbs the objects as a watch would bring them, and each decision is made for the whole World,
as the controller does after every change. The figures are CPU time of this thread alone, so they are
comparable on a busy machine.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from chaos.apiserver.client import Client
from chaos.apiserver.store import MemoryCluster
from chaos.bench.ours import NAMESPACE
from chaos.bench.scale import objects
from chaos.bench.scale.figures import Figure, of_times
from chaos.bench.scale.size import Gang, Rank, Size
from detectors.wire.contract import Severity
from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS
from recover.model import World
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.recipes.status import tell
from recover.recovery.expiry import expire
from recover.repair.means import load_means
from recover.repair.mend import repair
from recover.runtime.gauges import derive
from recover.runtime.node_conditions import NodeConditions
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from recover.triage.nodehealths import upkeep
from recover.triage.plan import plan
from recover.triage.spares import keep_spares

__all__ = ["InProcess"]

Decide = Callable[[World, datetime], object]

CHANGES = 200
"""Number of changes of pods that are absorbed for one figure."""
LOOKS = {
    "triage": "  triage",
    "upkeep": "  upkeep of NodeHealths",
    "spares": "  spares",
    "recipes": "  recipes",
    "repair": "  repair",
    "conditions": "  conditions of nodes",
    "expiry": "expiry, by time",
    "gauges": "gauges, at each scrape",
}
WOKEN = ("triage", "upkeep", "spares", "recipes", "repair", "conditions")
"""Decisions that run after every change that a decision may read."""
BEFORE = timedelta(hours=1)
"""Age of the objects."""


class InProcess:
    """A World of this size, as the controller keeps it."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.now = datetime.now(UTC).replace(microsecond=0)
        self._born = self.now - BEFORE
        self._settings = Settings(mode=Mode.RECOVER, agents_are_pods=True)
        self._changes = 0
        self._versions = itertools.count(1)
        # no request ever reaches the memory cluster
        cluster = Client(MemoryCluster(lambda: self.now), "bench")
        self.observer = Observer(cluster, self._settings, self._changed, lambda: self.now)
        self._modes = Modes(begun(self._settings.mode, self._born))
        self._gangs = size.gangs()
        self._ranks_on: dict[str, list[Rank]] = {}
        for rank in (rank for gang in self._gangs for rank in gang.ranks):
            self._ranks_on.setdefault(rank.node, []).append(rank)

    def _changed(self) -> None:
        self._changes += 1

    def measure(self, rounds: int) -> list[Figure]:
        fill_s = _cpu_s(self.fill)
        objects_made = 3 * self.size.nodes + self.size.pods + len(self._gangs)
        ask_s = _cpu_s(self._ask_all)
        gc.collect()
        gc.freeze()  # the controller freezes its objects in the same way
        return [
            Figure("absorb", "objects absorbed, each", "ms", 1000 * fill_s / objects_made),
            Figure("ask", "what is out of the ordinary is found, at the start", "ms", 1000 * ask_s),
            *self._looks(rounds),
            *self._absorbed(),
        ]

    def _ask_all(self) -> None:
        while not self.observer.subject_index.has_no_open_question:
            self.observer.subject_index.ask(self.world(), self.now)

    # --- the objects ----------------------------------------------------------------------------------------

    def fill(self) -> None:
        self._absorb(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for number, name in enumerate(self.size.node_names):
            self._absorb(NODES, self._node(name, number))
            self._absorb(PODS, objects.agent(name) | self._running())
            self._absorb(NODEHEALTHS, self._health(name))
        for gang in self._gangs:
            self._absorb(JOBS, objects.job(gang))
            job_uid = objects.uid_of(JOBS.kind, gang.name)
            for rank in gang.ranks:
                self._absorb(PODS, objects.rank(rank, job_uid) | self._running())
        for name, node in self.size.others():
            self._absorb(PODS, objects.other(name, node) | self._running())

    def _absorb(self, resource: Resource, body: Mapping[str, Any]) -> None:
        self.observer.absorb(resource, self._raw(resource, body))

    def _raw(self, resource: Resource, body: Mapping[str, Any]) -> bytes:
        return objects.stored(resource, dict(body), next(self._versions), self._born)

    def _node(self, name: str, number: int, **annotations: str) -> dict[str, Any]:
        body = objects.node(name, number)
        body["metadata"]["annotations"] = annotations
        return body | {"status": objects.node_status(name, self._born)}

    def _health(self, name: str, count: int = 0) -> dict[str, Any]:
        suspicion = objects.finding(name, self._born, severity=Severity.SUSPECT, count=max(1, count))
        steps = [
            objects.steps(rank, objects.uid_of(PODS.kind, rank.name), self._born)
            for rank in self._ranks_on.get(name, ())
        ]
        status = objects.health_status(name, self._born, *([suspicion] if count else []), steps=steps)
        return {"metadata": {"name": name}, "spec": {}, "status": msgspec.to_builtins(status, str_keys=True)}

    def _running(self) -> dict[str, Any]:
        return {"status": objects.running(self._born)}

    # --- what is measured -----------------------------------------------------------------------------------

    def world(self) -> World:
        return self.observer.world(self._modes)

    def decisions(self) -> dict[str, Decide]:
        """Returns the decisions, put together as the controller does."""
        settings, means, metrics = self._settings, load_means(self._settings.repair), Metrics()
        suspicion_s = settings.placement.suspicion_s
        return {
            "triage": lambda world, now: plan(world, settings, now),
            "upkeep": lambda world, _now: upkeep(world),
            "spares": keep_spares,
            "recipes": tell,
            "repair": lambda world, now: repair(world, settings, means, now),
            "conditions": NodeConditions(is_on=settings.node_condition).decide,
            "expiry": lambda world, now: expire(world, settings.retention, now),
            "gauges": lambda world, now: derive(metrics, world, now, suspicion_s=suspicion_s),
        }

    def _looks(self, rounds: int) -> list[Figure]:
        """Measures each decision. In each round a node changes and triage runs; then a finding appears, every
        decision runs once, and the finding goes away. The rounds are spread over all nodes."""
        times: dict[str, list[float]] = {}
        decisions = self.decisions()
        for number in range(rounds):
            index = number * self.size.nodes // rounds
            name = self.size.node_names[index]
            self._absorb(NODES, self._node(name, index, **{objects.NOTE: str(number)}))
            times.setdefault("node", []).append(self._look(decisions["triage"]))
            self._absorb(NODEHEALTHS, self._health(name, number + 1))
            for one, decide in decisions.items():
                times.setdefault(one, []).append(self._look(decide))
            times.setdefault("ask", []).append(_cpu_s(self._ask_all))
            self._absorb(NODEHEALTHS, self._health(name))
            self._ask_all()
        wake = [sum(of_one) for of_one in zip(*(times[one] for one in WOKEN), strict=True)]
        return [
            of_times("wake", "decisions after one change, all that it wakes", wake),
            of_times("ask after", "what it concerns is asked whether it is ordinary", times["ask"]),
            of_times("look node", "triage after a change of a node", times["node"]),
            *(of_times(f"look {one}", words, times[one]) for one, words in LOOKS.items()),
        ]

    def _look(self, decide: Decide) -> float:
        return _cpu_s(lambda: decide(self.world(), self.now))

    def _absorbed(self) -> list[Figure]:
        """Measures what one change of a pod costs before any decision runs, and how often it wakes the
        decisions."""
        largest, *others = sorted(self._gangs, key=lambda gang: len(gang.ranks), reverse=True)
        ordinary = (others or [largest])[0]
        rows = [
            ("rank", f"a rank changes, gang of {len(ordinary.ranks)}", self._rank_changes(ordinary)),
            ("rank of large", f"a rank changes, gang of {len(largest.ranks)}", self._rank_changes(largest)),
            ("other", "another pod changes", self._other_changes()),
        ]
        return [self._change(name, words, changes) for name, words, changes in rows if changes]

    def _change(self, name: str, words: str, changes: list[bytes]) -> Figure:
        before = self._changes
        times = [_cpu_s(partial(self.observer.absorb, PODS, raw)) for raw in changes]
        woke = f"wakes {(self._changes - before) / len(changes):.0%}"
        return of_times(f"absorb {name}", f"{words}: absorbed ({woke})", times)

    def _rank_changes(self, gang: Gang) -> list[bytes]:
        job_uid = objects.uid_of(JOBS.kind, gang.name)
        ranks = itertools.islice(itertools.cycle(gang.ranks), CHANGES)
        return [
            self._raw(PODS, objects.rank(rank, job_uid, note=str(number)) | self._running())
            for number, rank in enumerate(ranks)
        ]

    def _other_changes(self) -> list[bytes]:
        others = itertools.islice(self.size.others(), CHANGES)
        return [
            self._raw(PODS, objects.other(name, node, note="1") | self._running()) for name, node in others
        ]


def _cpu_s(act: Callable[[], object]) -> float:
    began_s = time.thread_time()
    act()
    return time.thread_time() - began_s
