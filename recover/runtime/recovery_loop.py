"""Drives each recovery through its phases. Recoveries of different gangs run at the same time; each one does
one reconcile and its writes at a time.
"""

from __future__ import annotations

import asyncio

import structlog

from recover.api import Phase, Recovery
from recover.policy.settings import Settings
from recover.recovery.advance import advance
from recover.runtime.loop_parts import LoopParts
from recover.runtime.queue import KeyedQueue
from recover.runtime.rest import rest_after
from recover.runtime.writing import ERROR_PAUSE_S

__all__ = ["Recoveries"]

log = structlog.get_logger(__name__)


class Recoveries:
    def __init__(self, parts: LoopParts, settings: Settings) -> None:
        self._parts = parts
        self._observer = parts.observer
        self._settings = settings
        self._queue = KeyedQueue()
        self._is_woken = False
        self._took_s: dict[str, float] = {}
        """Duration of the last reconcile of each recovery until its plan was made, if it was long."""

    def wake(self) -> None:
        """Wakes every recovery that still has something to do, after a change. All changes of one turn of the
        event loop wake them once, since a list may contain thousands of changes."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._add_all)

    def wake_gang(self, uid: str) -> None:
        """Wakes the recoveries of that gang, after a change for which they wait."""
        for key, recovery in self._observer.recoveries_of(uid).items():
            if recovery.active:
                self._queue.add(key)

    def _add_all(self) -> None:
        self._is_woken = False
        for key, recovery in self._observer.recoveries.rows.items():
            seen = self._observer
            if recovery.active or seen.has_scan(recovery) or seen.has_mark(recovery):
                self._queue.add(key)

    async def run(self) -> None:
        """Runs forever. A key comes again only after its task has ended, so there are never more tasks than
        recoveries."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(self._work(await self._queue.take(), group))
                    # a reconcile blocks the event loop; other tasks get their turn in between
                    await asyncio.sleep(0)
        finally:
            self._queue.close()

    async def _work(self, key: str, events: asyncio.TaskGroup) -> None:
        wait_s: float | None
        try:
            wait_s = await self._reconcile(key, events)
        except Exception:
            self._parts.metrics.errors.labels(loop="recovery").inc()
            log.exception("recovery failed, trying again", recovery=key, pause_s=ERROR_PAUSE_S)
            wait_s = ERROR_PAUSE_S
        if rest_s := self._rest_s(key):
            await asyncio.sleep(rest_s)
        self._queue.done(key)
        if wait_s is not None:
            self._queue.add_after(key, wait_s)

    def _rest_s(self, key: str) -> float:
        """Returns the rest after a reconcile. For blocked recoveries it is computed from the sum of their
        long reconciles: every change may wake hundreds of gangs that wait for room, and each of them compares
        all nodes. For any other recovery only its own last reconcile counts."""
        rows = self._observer.recoveries.rows
        for gone in self._took_s.keys() - rows.keys():
            del self._took_s[gone]
        if key not in self._took_s:
            return 0.0
        if rows[key].status.phase is not Phase.BLOCKED:
            return rest_after(self._took_s[key])
        return rest_after(
            sum(s for one, s in self._took_s.items() if rows[one].status.phase is Phase.BLOCKED)
        )

    async def _reconcile(self, key: str, events: asyncio.TaskGroup | None = None) -> float | None:
        """Reconciles and writes. After it has written a new phase, it reconciles again immediately, for the
        actions of that phase. Through the queue they would come after the reconciles of everything that the
        write has changed. This repeats at most as often as there are phases. Then the last write, which is
        itself a change, puts the key into the queue again."""
        rows, wait_s = self._observer.recoveries.rows, None
        for _ in Phase:
            recovery = rows.get(key)
            if recovery is None:
                return None
            wait_s = await self._reconcile_once(key, recovery, events)
            after = rows.get(key)
            if after is None or after.status.phase is recovery.status.phase:
                break
        return wait_s

    async def _reconcile_once(
        self, key: str, recovery: Recovery, events: asyncio.TaskGroup | None
    ) -> float | None:
        self._parts.metrics.reconciles.labels(loop="recovery").inc()
        with self._parts.metrics.reconcile_seconds.labels(loop="recovery").time():
            world = self._parts.world()
            began_s = asyncio.get_running_loop().time()
            plan = advance(recovery, world, self._settings, self._parts.clock.now())
            self._note_duration(key, asyncio.get_running_loop().time() - began_s)
        again_s = await self._parts.executor.run(plan, events)
        waits = [wait_s for wait_s in (again_s, self._parts.modes.changes_in_s()) if wait_s is not None]
        return min(waits, default=None)

    def _note_duration(self, key: str, took_s: float) -> None:
        if rest_after(took_s):
            self._took_s[key] = took_s
        else:
            self._took_s.pop(key, None)
