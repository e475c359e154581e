"""Look at the world, decide, write, again: whenever something changes, and when time alone may matter.

One look at a time, on purpose: budgets and brakes are counted from objects, so two decisions at once could
both take the last place. A look costs milliseconds; its writes go out together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec
import structlog

from recover.actions import Emit, Failure, Plan
from recover.execute import Executor
from recover.mode import ModeKeeper
from recover.model import World
from recover.observe import Observer
from recover.reasons import EventReason
from recover.telemetry import Clock, Metrics

__all__ = ["WholeWorld"]

ERROR_PAUSE_S = 1.0

log = structlog.get_logger(__name__)


class WholeWorld:
    """Runs one pure decision over the whole world: `decide(world, now) -> Plan`."""

    def __init__(
        self,
        name: str,
        decide: Callable[[World, datetime], Plan],
        observer: Observer,
        executor: Executor,
        modes: ModeKeeper,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._name = name
        self._decide = decide
        self._observer = observer
        self._executor = executor
        self._modes = modes
        self._metrics = metrics
        self._clock = clock
        self._changed = asyncio.Event()
        self._told: set[tuple[str, str]] = set()
        """Failures of the last look: uid of the object, and the kind of error."""

    def wake(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """For ever. An error in one look is counted and logged; the next look starts afresh."""
        while True:
            self._changed.clear()
            try:
                wait_s = await self._look()
            except Exception:
                self._metrics.errors.labels(loop=self._name).inc()
                log.exception("look failed, looking again", loop=self._name, pause_s=ERROR_PAUSE_S)
                wait_s = ERROR_PAUSE_S
                await asyncio.sleep(ERROR_PAUSE_S)
            await _either(self._changed, wait_s)

    async def _look(self) -> float | None:
        self._metrics.looks.labels(loop=self._name).inc()
        with self._metrics.look_seconds.labels(loop=self._name).time():
            world = self._observer.world(self._modes.now())
            plan = self._decide(world, self._clock.now())
        events = tuple((event,) for event in self._tell(plan.failures))
        return await self._executor.run(msgspec.structs.replace(plan, chains=(*plan.chains, *events)))

    def _tell(self, failures: Iterable[Failure]) -> Iterator[Emit]:
        """Each is counted at every look, and logged and told on its object when it is new."""
        before, self._told = self._told, set()
        for failure in failures:
            self._metrics.errors.labels(loop=self._name).inc()
            about, error = failure.about, failure.error
            known = (about["uid"], type(error).__name__)
            self._told.add(known)
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
                message=f"Rekindle cannot judge this {about['kind']} and leaves it alone meanwhile "
                f"({type(error).__name__}). That is a defect: the controller's log has it, with a traceback",
                regarding=dict(about),
                warning=True,
                key=type(error).__name__,
            )


async def _either(changed: asyncio.Event, wait_s: float | None) -> None:
    """Not by wait_for: before Python 3.12 it forgets a cancellation that comes together with the change, and
    the loop would outlive its controller."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await changed.wait()
