"""Runs the loop of one decision: read the World, decide, write. The loop runs whenever something changes, and
when time alone may matter.

One reconcile runs at a time, on purpose: budgets and brakes are counted from objects, so two decisions at
once could both take the last place. The next reconcile of triage does not wait for the writes of the last one
(writing.py): what these writes take counts from the moment of the decision. All other loops wait, since they
count only objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial

import msgspec
import structlog

from recover.api.reasons import EventReason
from recover.model import World
from recover.model.actions import Emit, Failure, Plan
from recover.runtime.loop_parts import LoopParts
from recover.runtime.queue import KeyedQueue
from recover.runtime.rest import rest_after
from recover.runtime.writing import ERROR_PAUSE_S, Writing

__all__ = ["Decide", "Decided", "DecisionLoop"]

Decide = Callable[[World, datetime], Plan]
Decided = Callable[[str, Decide, World, datetime, Plan], None]
"""Callback for each plan: the loop's name, the decision, its World, the time, and the plan."""

PAUSE_S = 0.05
"""Shortest time between two reconciles while writes are in flight. Each answer is a change, and a storm of
writes must not become a storm of reconciles."""

_ONLY_KEY = "reconcile"
log = structlog.get_logger(__name__)


class DecisionLoop:
    """Runs one pure decision, `decide(world, now) -> Plan`. Most decisions go through `World.subjects`, the
    Incidents and the Recoveries, and look up other objects by their keys."""

    def __init__(
        self,
        name: str,
        decide: Decide,
        parts: LoopParts,
        *,
        waits_for_writes: bool = True,
        is_unhurried: bool = False,
        decided: Decided | None = None,
    ) -> None:
        self._name = name
        self._decide = decide
        self._parts = parts
        self._waits_for_writes = waits_for_writes
        self._is_unhurried = is_unhurried
        self._queue = KeyedQueue()
        """Queue of a single key, which wakes the loop."""
        again = partial(self._queue.add_after, _ONLY_KEY)
        self._writing = Writing(name, parts.executor, parts.metrics, again)
        self._notify = decided
        self._took_s = 0.0
        """Duration of the last reconcile, until its plan was made."""
        self._known_failures: set[tuple[str, str]] = set()
        """Failures of the last reconcile: uid of the object, and the kind of error."""

    def wake(self) -> None:
        self._queue.add(_ONLY_KEY)

    async def run(self) -> None:
        """Runs forever. An error in one reconcile is counted and logged, and the next reconcile starts from
        the objects again. Writes in flight end with the loop."""
        self.wake()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._queue.take()
                    self._queue.done(_ONLY_KEY)
                    await self._reconcile(group)
                    rest_s = rest_after(self._took_s, is_unhurried=self._is_unhurried)
                    ends_s = loop.time() + rest_s
                    await self._writing.settled(None if self._waits_for_writes else max(PAUSE_S, rest_s))
                    if ends_s > loop.time():
                        await asyncio.sleep(ends_s - loop.time())
        finally:
            self._queue.close()

    async def _reconcile(self, group: asyncio.TaskGroup) -> None:
        try:
            plan = self._plan()
            self._writing.begin(plan, group)
        except Exception:
            self._parts.metrics.errors.labels(loop=self._name).inc()
            log.exception("reconcile failed, trying again", loop=self._name, pause_s=ERROR_PAUSE_S)
            await asyncio.sleep(ERROR_PAUSE_S)
            self.wake()
            return
        for wait_s in (plan.requeue_after_s, self._parts.modes.changes_in_s()):
            if wait_s is not None:
                self._queue.add_after(_ONLY_KEY, wait_s)

    def _plan(self) -> Plan:
        """Returns the plan for the present World, and an Event for each object that cannot be judged."""
        self._parts.metrics.reconciles.labels(loop=self._name).inc()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with self._parts.metrics.reconcile_seconds.labels(loop=self._name).time():
            world = self._parts.world()
            now = self._parts.clock.now()
            plan = self._decide(world, now)
        self._took_s = loop.time() - began_s
        if self._notify is not None:
            self._notify(self._name, self._decide, world, now, plan)
        events = tuple((event,) for event in self._tell(plan.failures))
        return msgspec.structs.replace(plan, chains=(*plan.chains, *events))

    def _tell(self, failures: Iterable[Failure]) -> Iterator[Emit]:
        """Counts each failure at every reconcile. Logs a new failure, and yields an Event about it for the
        object."""
        before, self._known_failures = self._known_failures, set()
        for failure in failures:
            self._parts.metrics.errors.labels(loop=self._name).inc()
            about, error = failure.about, failure.error
            known = (about["uid"], type(error).__name__)
            self._known_failures.add(known)
            if known in before:
                continue
            log.error(
                "one object cannot be judged, all others are",
                loop=self._name,
                kind=about["kind"],
                object="/".join(filter(None, (about.get("namespace"), about["name"]))),
                exc_info=error,
            )
            yield Emit(
                reason=EventReason.NOT_JUDGED,
                message=f"Rekindle cannot process this {about['kind']} because of a defect, and does not "
                f"act on it ({type(error).__name__}). The controller's log has a traceback: please "
                "report it",
                regarding=dict(about),
                warning=True,
                key=type(error).__name__,
            )
