"""Assembles the controller: the observer, the loops, the executor. Everything that the controller must
remember is in API objects.

A controller that stands by keeps its caches and indexes up to date, and writes nothing: no loop that decides
runs until it leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

import structlog
import tenacity

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.k8s.kinds import INCIDENTS, NODES, RECOVERIES
from recover.kube.clock import Clock
from recover.kube.cluster import Cluster
from recover.kube.errors import Transient
from recover.kube.pages import Pages
from recover.model import World
from recover.model.actions import Plan
from recover.policy.settings import Settings
from recover.recipes.status import tell
from recover.recovery.expiry import expire, is_near_the_cap
from recover.repair.means import load_means
from recover.repair.mend import repair
from recover.runtime.decision_loop import Decided, DecisionLoop
from recover.runtime.execute import Executor
from recover.runtime.gauges import derive
from recover.runtime.limiter import Urgency
from recover.runtime.loop_parts import LoopParts
from recover.runtime.mode_keeper import ModeKeeper
from recover.runtime.node_conditions import NodeConditions
from recover.runtime.observe import Observer
from recover.runtime.pause_news import PauseNews
from recover.runtime.recovery_loop import Recoveries
from recover.runtime.telemetry import Metrics
from recover.runtime.webhook import Outside
from recover.triage.nodehealths import upkeep
from recover.triage.plan import plan
from recover.triage.spares import keep_spares
from recover.workloads import WORKLOADS

__all__ = ["Controller"]

GC_OFF_S_MAX = 120.0
"""Longest time without garbage collection. It is longer than a large sync takes. Without this limit, garbage
would fill the memory if the API server is away for hours."""

SOON_S = 0.5
"""Time for which changes that are not urgent are collected before one reconcile handles all of them."""

SWEEP_S, SWEEP_PAUSE_S = 300.0, 0.05
"""Pause between two sweeps, and between two slices of one sweep."""

log = structlog.get_logger(__name__)


LAST_LEADERS_WORK = (NODES, INCIDENTS, RECOVERIES)
"""Kinds by which budgets are counted. No precondition of a write protects against an outdated view of these
kinds."""
FRAMEWORKS = tuple(workload.resource for workload in WORKLOADS)
"""Kinds of jobs. The last leader may have just created a job again, and this controller must not conclude
that the job is gone. Not every kind need be installed."""


class Controller:
    """Runs until it is cancelled.

    `ready` is set once every kind has been listed. The owner of the event `leading` sets it once this
    controller may write. `may_send` raises if this controller may not write; requests that do not go through
    the cluster call it. `decided` is called with each plan of the loops triage, upkeep, spares, recipes and
    repair, and changes nothing: tests use it.

    Raises SettingsError if the settings of repairs or signals are unusable.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        leading: asyncio.Event,
        may_send: Callable[[], None] | None = None,
        decided: Decided | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self.leading = leading
        self.metrics = metrics
        self._cluster = cluster
        self._clock = clock
        self._suspicion_s = settings.placement.suspicion_s
        self._begun = False
        self.observer = Observer(cluster, settings, self._wake, clock.now, self._wake_soon, self._wake_gang)
        self._soon = asyncio.Event()
        self._modes = ModeKeeper(cluster, self.observer, settings, clock)
        outside = Outside(settings.repair.webhook, may_send)
        self._executor = executor = Executor(cluster, self.observer, metrics, clock, outside)
        means = load_means(settings.repair)

        def triage(world: World, now: datetime) -> Plan:
            return plan(world, settings, now)

        def keep_up(world: World, _now: datetime) -> Plan:
            return upkeep(world)

        def mend(world: World, now: datetime) -> Plan:
            return repair(world, settings, means, now)

        def expiry(world: World, now: datetime) -> Plan:
            return expire(world, settings.retention, now, repairs_window_s=settings.repair.repairs_window_s)

        node_conditions = NodeConditions(is_on=settings.node_condition)
        parts = LoopParts(self.observer, executor, self._modes, metrics, clock)
        self._woken = (
            DecisionLoop("triage", triage, parts, waits_for_writes=False, decided=decided),
            DecisionLoop("upkeep", keep_up, parts, decided=decided),
            DecisionLoop("spares", keep_spares, parts, decided=decided),
            DecisionLoop("recipes", tell, parts, decided=decided, is_unhurried=True),
            DecisionLoop("repair", mend, parts, decided=decided, is_unhurried=True),
            DecisionLoop("pause", PauseNews(settings.namespace).decide, parts),
            DecisionLoop("conditions", node_conditions.decide, parts, is_unhurried=True),
        )
        self._by_time = DecisionLoop("expiry", expiry, parts, is_unhurried=True)
        self._retention = settings.retention
        self._was_near_the_cap = False
        self._recoveries = Recoveries(parts, settings)

    def _wake(self) -> None:
        if self._begun:
            for loop in self._woken:
                loop.wake()
            self._recoveries.wake()
            self._wake_near_the_cap()

    def _wake_near_the_cap(self) -> None:
        """Wakes the removal of old objects once, when their number comes near its limit. From then on that
        loop requeues itself."""
        seen = self.observer
        is_near = is_near_the_cap(len(seen.incidents.rows), len(seen.recoveries.rows), self._retention)
        if is_near and not self._was_near_the_cap:
            self._by_time.wake()
        self._was_near_the_cap = is_near

    def _wake_gang(self, uid: str) -> None:
        """Wakes the loops and that gang's recovery at once. All other recoveries reconcile soon, since none
        of them waits for this change."""
        if self._begun:
            for loop in self._woken:
                loop.wake()
            self._recoveries.wake_gang(uid)
        self._wake_soon()

    def _wake_soon(self) -> None:
        self._soon.set()

    async def run(self) -> None:
        """Runs all loops. Call this only once it is known whether another controller leads
        (Elector.holder_known). If another one leads, its writes are read again before the loops decide."""
        follows_another = not self.leading.is_set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.observer.run())
            gc.disable()  # a full collection over a large sync stalls the loop for 100 ms and more
            at_last = asyncio.get_running_loop().call_later(GC_OFF_S_MAX, gc.enable)
            await self.observer.synced()
            at_last.cancel()
            gc.freeze()
            gc.enable()
            await self._ask_all()
            self.ready.set()
            log.info("in step with the API", **self._sizes())
            group.create_task(self._sift())
            group.create_task(self._sweep())
            await self.leading.wait()
            if follows_another:
                await self._catch_up()
            await _until_answered(self._modes.load)
            self._begun = True
            for loop in (*self._woken, self._by_time):
                group.create_task(loop.run())
            group.create_task(self._modes.run())
            group.create_task(self._recoveries.run())
            self._recoveries.wake()

    async def _ask_all(self) -> None:
        """Asks which subjects are ordinary, a slice at a time. Subjects that change meanwhile are asked with
        the next changes: in a storm of changes the reconcile that follows would otherwise never start."""
        index = self.observer.subject_index
        left = index.waiting
        while left > 0 and index.waiting:
            left -= index.ask(self.observer.world(self._modes.now()), self._clock.now(), left)
            await asyncio.sleep(0)

    async def _sift(self) -> None:
        """Runs forever. Collects the changes that are not urgent (changes.py), and starts one reconcile for
        all of them."""
        while True:
            await self._soon.wait()
            await asyncio.sleep(SOON_S)
            self._soon.clear()
            await self._ask_all()
            self._wake()

    async def _sweep(self) -> None:
        """Runs forever. Finds subjects that the indexes have missed, so that no subject stays unseen."""
        while True:
            await asyncio.sleep(SWEEP_S)
            is_done = False
            while not is_done:
                world, now = self.observer.world(self._modes.now()), self._clock.now()
                missed, is_done = self.observer.subject_index.sweep(world, now)
                if missed:
                    self.metrics.errors.labels(loop="sweep").inc(missed)
                    self._wake()
                await asyncio.sleep(SWEEP_PAUSE_S)

    async def _catch_up(self) -> None:
        """Reads everything that the last leader wrote. A leader's own writes are in its caches at once. The
        writes of another leader come by watches, which may lag or be silent for a while."""
        for resource in (*LAST_LEADERS_WORK, *FRAMEWORKS):
            await _until_answered(partial(self._list, resource, Pages(self._cluster, resource)))

    async def _list(self, resource: Resource, pages: Pages) -> None:
        try:
            async with contextlib.aclosing(pages.read()) as answers:
                async for answer in answers:
                    for item in answer.items:
                        self.observer.absorb(resource, bytes(item))
        except ApiError as error:
            if resource not in FRAMEWORKS or not error.not_found:
                raise

    def _sizes(self) -> dict[str, int]:
        world = self.observer.world(self._modes.now())
        return {
            "nodes": len(world.nodes),
            "gangs": len(world.gangs),
            "incidents": len(world.incidents),
            "recoveries": len(world.recoveries),
        }

    def refresh_gauges(self) -> None:
        """Derives the gauges from the objects. The web server calls it before each scrape, so no gauge is
        updated in between."""
        world = self.observer.world(self._modes.now())
        self.metrics.leader.set(self.leading.is_set())
        self.metrics.writes_in_flight.set(self._executor.limiter.in_flight)
        waiting = self._executor.limiter.waiting()
        for urgency in Urgency:
            self.metrics.writes_waiting.labels(urgency=urgency.name.lower()).set(waiting[urgency])
        derive(self.metrics, world, self._clock.now(), suspicion_s=self._suspicion_s)
        self.metrics.unreadable.clear()
        for kind, count in self.observer.unreadable().items():
            self.metrics.unreadable.labels(kind=kind).set(count)


async def _until_answered(call: Callable[[], Awaitable[None]]) -> None:
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type((ApiError, ReplyLost, Transient)),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=10.0),
        before_sleep=_say_why,
    ):
        with attempt:
            await call()


def _say_why(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("cannot begin yet, trying again", error=str(error))
