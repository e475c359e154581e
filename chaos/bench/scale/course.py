"""Measures a cluster of one size, in this order: a controller with raised limits, then a controller with the
limits as shipped, then the controllers that follow it. CPU time is the controller's own, so it is comparable
on a busy machine. Times that end with a cordon or a lease are by the wall clock."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from chaos.bench.ours import each
from chaos.bench.scale import objects
from chaos.bench.scale.controllers import Controller, running
from chaos.bench.scale.figures import AtSize, Figure, medians, of_times
from chaos.bench.scale.ground import Ground, laid, now
from chaos.bench.scale.size import Size
from chaos.scenarios.stage import StageError
from detectors.client.kubeapi import KubeApi
from detectors.wire.contract import Severity
from recover.k8s.kinds import NODES, PODS

__all__ = ["RAISED", "Pace", "at_size"]

RAISED = (
    "budgets.quarantined_percent_max=100",
    "budgets.pool_percent_max=100",
    "budgets.quarantined_nodes_max=1000000",
    "budgets.quarantines_per_hour_max=1000000",
    "budgets.brake_percent=100",
    "budgets.brake_nodes_min=1000000",
)
"""Settings with which no budget and no brake refuses an action."""
MIB = 1024 * 1024
STORM_MAX = 500
LIMIT_S = 300.0
LOOK_S = 0.02
TOLD_LOOK_S = 0.1
"""Seconds between two requests for Incidents. The API server takes the faults at the same time, and each
request is work for it."""
ABOUT_MANY = ("fleet-brake-", "quarantine-limit-")
"""Prefixes of the names of Incidents about many nodes."""


class Pace(msgspec.Struct, frozen=True):
    runs: int = 1
    """How often everything is measured on the filled cluster. Each figure is the median of the runs."""
    rounds: int = 20
    """Number of single faults, and of single changes of nodes and findings."""
    pods: int = 200
    """Number of changes of pods, of each kind."""
    pods_per_s: float = 50.0
    burst: int = 2000
    """Number of changes of ranks that are made as fast as the API server takes them."""
    idle_s: float = 10.0
    incident_limit_s: float = 15.0
    """Seconds that a storm may take until one Incident reports many nodes. A few nodes, as in a small
    cluster, have one Incident each."""


async def at_size(
    api: KubeApi, access: Sequence[str], folder: Path, size: Size, settings: Sequence[str], pace: Pace
) -> AtSize:
    """Fills the cluster and measures it. Raises StageError, ApiError or ReplyLost."""
    began_s = time.monotonic()
    async with laid(api, size) as ground:
        filled = Figure("fill", "the bench fills the cluster, wall clock", "s", time.monotonic() - began_s)
        runs: list[list[Figure]] = []
        for number in range(1, pace.runs + 1):
            if runs:
                await ground.renew(size.free_nodes)
            own = folder / f"run-{number}-{size.nodes}"
            own.mkdir()
            course = Course(ground, own, access, tuple(settings), pace)
            runs.append([*await course.with_raised_limits(), *await course.as_shipped()])
    return AtSize(size, (filled, *medians(runs)))


class Course:
    def __init__(
        self, ground: Ground, folder: Path, access: Sequence[str], settings: tuple[str, ...], pace: Pace
    ) -> None:
        self._ground = ground
        self._folder = folder
        self._access = access
        self._settings = settings
        self._pace = pace
        self._idle_share = 0.0

    @asynccontextmanager
    async def _controller(self, name: str, *settings: str) -> AsyncIterator[Controller]:
        async with running(name, self._folder, self._access, (*self._settings, *settings)) as controller:
            yield controller

    async def with_raised_limits(self) -> list[Figure]:
        async with self._controller("raised", *RAISED) as controller:
            await controller.in_step()
            await controller.quiet()
            found = [*_start(controller), await self._idle(controller)]
            found += await self._changes(controller)
            found += await self._cordons(controller)
            found += _stall(controller, "stall", "longest turn of the loop since", controller.in_step_at_s)
            at_s = time.time()
            found += await self._storm(controller)
            found += _stall(controller, "storm stall", "  longest turn of the loop", at_s)
            found.append(_memory("memory after", "memory after the storm, PSS", controller))
        await self._ground.renew(self._ground.size.free_nodes)
        return found

    async def as_shipped(self) -> list[Figure]:
        async with self._controller("shipped") as first:
            await first.in_step()
            await first.quiet()
            found = await self._braked(first)
            async with self._controller("second") as second:
                await second.in_step()
                found.append(await self._follows(second, "a clean end", "clean", first.child.stop()))
                async with self._controller("third") as third:
                    await third.in_step()
                    found.append(await self._follows(third, "a crash", "crash", second.child.kill()))
        return found

    # --- in turn --------------------------------------------------------------------------------------------

    async def _idle(self, controller: Controller) -> Figure:
        before_s, began_s = controller.cpu_s(), time.monotonic()
        await asyncio.sleep(self._pace.idle_s)
        self._idle_share = (controller.cpu_s() - before_s) / (time.monotonic() - began_s)
        return Figure("idle", "idle, share of a core", "%", 100 * self._idle_share)

    async def _changes(self, controller: Controller) -> list[Figure]:
        ground, pods = self._ground, self._pace.pods
        largest, *others = sorted(ground.gangs, key=lambda gang: len(gang.ranks), reverse=True)
        ordinary = (others or [largest])[0]
        of_others = [name for name, _ in itertools.islice(ground.size.others(), pods)]
        found = []
        for name, words, names in (
            ("rank", f"a rank changes, gang of {len(ordinary.ranks)}", [r.name for r in ordinary.ranks]),
            (
                "rank of large",
                f"a rank changes, gang of {len(largest.ranks)}",
                [r.name for r in largest.ranks],
            ),
            ("other", "another pod changes", of_others),
        ):
            changing = (ground.change(PODS, pod) for pod in itertools.islice(itertools.cycle(names), pods))
            if names:
                pace_s = 1 / self._pace.pods_per_s
                words = f"{words}, {self._pace.pods_per_s:g} a second: all CPU, each"
                found.append(await self._each(controller, name, words, changing, pods, pace_s))
        found += await self._burst(controller, [rank.name for rank in largest.ranks])
        rounds, free = self._pace.rounds, ground.size.free_nodes
        nodes = list(itertools.islice(itertools.cycle(free), rounds))
        changing = (ground.change(NODES, node) for node in nodes)
        words = "a node changes: all CPU, each"
        found.append(await self._each(controller, "node", words, changing, rounds, 0.3))
        suspicions = (
            ground.publish(node, objects.finding(node, now(), severity=Severity.SUSPECT)) for node in nodes
        )
        words = "a finding comes: all CPU, each"
        found.append(await self._each(controller, "finding", words, suspicions, rounds, 0.3))
        for node in {*nodes}:
            await ground.publish(node)
        return found

    async def _each(
        self,
        controller: Controller,
        name: str,
        words: str,
        changes: Iterable[Awaitable[None]],
        count: int,
        pace_s: float,
    ) -> Figure:
        """Makes the changes at a steady pace, and returns the CPU time per change. The CPU time that the
        controller takes while it is idle is not counted."""
        await controller.quiet()
        before_s, began_s = controller.cpu_s(), time.monotonic()
        for number, change in enumerate(changes, 1):
            await change
            await asyncio.sleep(max(0.0, began_s + number * pace_s - time.monotonic()))
        await controller.quiet()
        idle_s = self._idle_share * (time.monotonic() - began_s)
        used_s = max(0.0, controller.cpu_s() - before_s - idle_s)
        return Figure(name, words, "ms", 1000 * used_s / count, rounds=count)

    async def _burst(self, controller: Controller, names: Sequence[str]) -> list[Figure]:
        """Changes ranks of one gang with several writers at the same time. Changes that arrive together share
        one turn of the controller's loop, so each of them costs less."""
        count = self._pace.burst
        await controller.quiet()
        before_s, began_s = controller.cpu_s(), time.monotonic()
        changing = itertools.islice(itertools.cycle(names), count)
        await each(self._ground.change(PODS, name) for name in changing)
        rate = count / (time.monotonic() - began_s)
        await controller.quiet()
        idle_s = self._idle_share * (time.monotonic() - began_s)
        used_s = max(0.0, controller.cpu_s() - before_s - idle_s)
        words = f"a rank changes, gang of {len(names)}, as often as the API server takes it: all CPU, each"
        return [
            Figure("rank burst", words, "ms", 1000 * used_s / count, rounds=count),
            Figure("rank burst rate", "  changes a second that were reached", "", rate),
        ]

    async def _cordons(self, controller: Controller) -> list[Figure]:
        """Strikes one node after the other. None of these nodes has ranks."""
        free = self._ground.size.free_nodes
        struck = free[: min(self._pace.rounds, len(free) // 2)] or free[:1]
        times: list[float] = []
        async with self._seen_out() as out:
            before_s = controller.cpu_s()
            for node in struck:
                began_s = time.time()
                await self._ground.strike([node])
                await _until(lambda node=node: node in out, f"cordon of {node}")  # type: ignore[misc]
                times.append(out[node] - began_s)
                await controller.quiet()
            used_s = (controller.cpu_s() - before_s) / len(struck)
        return [
            of_times("cordon", "finding -> cordon and taint, wall clock", times),
            Figure("cordon cpu", "  all CPU, each", "ms", 1000 * used_s, rounds=len(struck)),
        ]

    async def _storm(self, controller: Controller) -> list[Figure]:
        """Strikes the free nodes that are not cordoned yet, at most STORM_MAX of them, at once."""
        async with self._seen_out() as out:
            await asyncio.sleep(0.5)
            struck = self._storm_nodes(but=await self._ground.cordoned())
            before_s, began_s = controller.cpu_s(), time.time()
            await self._ground.strike(struck)
            await _until(lambda: {*struck} <= out.keys(), f"cordon of {len(struck)} nodes")
            took_s = max(out[node] for node in struck) - began_s
            await controller.quiet()
        used_s = controller.cpu_s() - before_s
        words = f"{len(struck)} nodes fail at once, limits raised"
        return [
            Figure("storm", f"{words}: all cordoned, wall clock", "s", took_s),
            Figure("storm cpu", "  all CPU until it is quiet", "s", used_s),
        ]

    def _storm_nodes(self, but: Iterable[str] = ()) -> list[str]:
        left = {*but}
        return [node for node in self._ground.size.free_nodes if node not in left][:STORM_MAX]

    async def _braked(self, controller: Controller) -> list[Figure]:
        struck = self._storm_nodes()
        before_s, began_s = controller.cpu_s(), time.time()
        telling = asyncio.create_task(self._incident_s(began_s))
        await self._ground.strike(struck)
        incident_s = await telling
        await controller.quiet()
        used_s = controller.cpu_s() - before_s
        words = f"{len(struck)} nodes fail at once, limits as shipped"
        found = [
            Figure("braked", f"{words}: cordoned", "nodes", len(await self._ground.cordoned())),
            Figure("braked incidents", "  Incidents", "", len(await self._ground.incidents())),
            Figure("braked cpu", "  all CPU until it is quiet", "s", used_s),
        ]
        if incident_s is not None:
            words = "  one Incident about many nodes is there, wall clock"
            found.append(Figure("braked told", words, "s", incident_s))
        return found

    async def _incident_s(self, began_s: float) -> float | None:
        """Returns the seconds from `began_s` until an Incident about many nodes exists, or None if none came
        in time. Further nodes fail in this time."""
        while time.time() < began_s + self._pace.incident_limit_s:
            if any(name.startswith(ABOUT_MANY) for name in await self._ground.incidents()):
                return time.time() - began_s
            await asyncio.sleep(TOLD_LOOK_S)
        return None

    async def _follows(
        self, follower: Controller, words: str, name: str, ending: Awaitable[object]
    ) -> Figure:
        """Returns the seconds from the end of the leader until the follower has the lease."""
        began_s = time.time()
        await ending
        async with asyncio.timeout(LIMIT_S):
            while await self._ground.leader() != follower.name:
                await asyncio.sleep(LOOK_S)
        return Figure(
            f"failover {name}",
            f"{words} of the leader -> the next one leads, wall clock",
            "s",
            time.time() - began_s,
        )

    @asynccontextmanager
    async def _seen_out(self) -> AsyncIterator[dict[str, float]]:
        """Yields the times at which nodes were first seen cordoned and tainted, by node. A task adds nodes
        until the block ends."""
        out: dict[str, float] = {}
        watching = asyncio.create_task(self._ground.watch_out(out))
        try:
            yield out
        finally:
            watching.cancel()


def _start(controller: Controller) -> list[Figure]:
    return [
        Figure("sync", "start -> in step, wall clock", "s", controller.sync_s),
        Figure("sync cpu", "  CPU", "s", controller.sync_cpu_s),
        *_stall(controller, "sync stall", "  longest turn of the loop until then", controller.started_at_s),
        _memory("memory", "memory in step, PSS", controller),
    ]


def _stall(controller: Controller, name: str, words: str, since_s: float) -> list[Figure]:
    longest = controller.stall(since_s)
    return [] if longest is None else [Figure(name, f"{words} ({longest.what})", "ms", 1000 * longest.cpu_s)]


def _memory(name: str, words: str, controller: Controller) -> Figure:
    return Figure(name, words, "MiB", controller.usage().pss_bytes / MIB)


async def _until(found: Callable[[], bool], what: str) -> None:
    """Waits until `found` returns true. Raises StageError after LIMIT_S."""
    deadline_s = time.monotonic() + LIMIT_S
    while not found():
        if time.monotonic() > deadline_s:
            raise StageError(f"no {what} within {LIMIT_S:g} s")
        await asyncio.sleep(LOOK_S)
