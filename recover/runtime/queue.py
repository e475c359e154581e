"""A queue of keys: each key waits at most once, and is worked on by at most one worker at a time."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["KeyedQueue"]


class KeyedQueue:
    """Keys that wait for a worker. A key that is added while a worker works on it is queued again afterwards,
    so no change is missed."""

    def __init__(self) -> None:
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def add(self, key: str) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: str, delay_s: float) -> None:
        """Adds the key later. If the key already waits for a time, the earlier time wins."""
        loop = asyncio.get_running_loop()
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= loop.time() + delay_s:
                return
            pending.cancel()
        self._timers[key] = loop.call_later(max(0.0, delay_s), self._due, key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def take(self) -> str:
        """Returns the next key. The caller must call `done` with it."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
