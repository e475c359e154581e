"""Writes the chains of one reconcile while the next reconciles go on.

A slow chain, for example behind a webhook that does not answer, delays no other chain. Only one chain writes
an object at a time: a later reconcile leaves out each of its chains that contains that object, and the loop
reconciles again once the chain in flight has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from recover.model.actions import Action, Ask, ConfirmListed, Emit, Plan
from recover.runtime.execute import Executor
from recover.runtime.telemetry import Metrics

__all__ = ["ERROR_PAUSE_S", "LEFT_OUT_AGAIN_S", "Writing", "either"]

ERROR_PAUSE_S = 1.0
LEFT_OUT_AGAIN_S = 0.2
"""Pause until the next reconcile if a chain was left out because of another chain that has failed."""

log = structlog.get_logger(__name__)


class Writing:
    """The chains in flight of one loop. If a reconcile is needed after a chain, `again(wait_s)` is called."""

    def __init__(
        self, name: str, executor: Executor, metrics: Metrics, again: Callable[[float], None]
    ) -> None:
        self._name = name
        self._executor = executor
        self._metrics = metrics
        self._again = again
        self._busy: set[tuple[str, ...]] = set()
        """Objects of chains in flight."""
        self._left_out: set[tuple[str, ...]] = set()
        """Objects that a later reconcile wants to write while a chain in flight writes them."""
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, plan: Plan, group: asyncio.TaskGroup) -> None:
        """Starts the chains whose objects no other chain writes. There are never more chains than objects.
        Events are further tasks of the group."""
        for chain in plan.chains:
            objects = {_object(action) for action in chain}
            if not chain:
                continue
            if objects & self._busy:
                self._left_out |= objects & self._busy
                continue
            self._busy |= objects
            self._idle.clear()
            group.create_task(self._write(self._executor.begin(chain, group), objects))

    async def settled(self, at_most_s: float | None) -> None:
        """Waits until nothing is in flight, or at most for that time. None: waits as long as it takes."""
        await either(self._idle, at_most_s)

    async def _write(self, writing: Coroutine[Any, Any, float | None], objects: set[tuple[str, ...]]) -> None:
        wait_s: float | None
        try:
            wait_s = await writing
        except Exception:
            self._metrics.errors.labels(loop=self._name).inc()
            log.exception("writes failed, trying again", loop=self._name, pause_s=ERROR_PAUSE_S)
            wait_s = ERROR_PAUSE_S
        self._busy -= objects
        if not self._busy:
            self._idle.set()
        if objects & self._left_out:  # a chain was left out, not refused: it need not wait as long
            wait_s = 0.0 if wait_s is None else min(wait_s, LEFT_OUT_AGAIN_S)
        self._left_out -= objects
        if wait_s is not None:
            self._again(wait_s)


def _object(action: Action) -> tuple[str, ...]:
    """Returns the object that an action writes or reads. Each Event is an object in its own right."""
    if isinstance(action, Emit):
        return "event", action.regarding["uid"], action.reason, action.key
    if isinstance(action, Ask):
        return "ask", action.id
    kind = f"{action.resource.group}/{action.resource.plural}"
    if isinstance(action, ConfirmListed):
        return kind, action.namespace, action.labels
    return kind, action.namespace, action.name


async def either(changed: asyncio.Event, wait_s: float | None) -> None:
    """Waits for the event, or at most `wait_s` seconds. It does not use wait_for: before Python 3.12 that
    function forgets a cancellation that comes together with the change, and the loop would outlive its
    controller."""
    try:
        async with asyncio.timeout(wait_s):
            await changed.wait()
    except TimeoutError:
        return
