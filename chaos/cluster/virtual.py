"""Virtual time: an asyncio event loop in which sleeping costs nothing. The simulator runs on it.

The loop does no I/O. When nothing is ready, it jumps to the next timer. If there is no timer either,
everything would wait without end, and the loop reports that instead of hanging. Callbacks run in the order in
which they became ready, so the same program makes the same run.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

__all__ = ["Clock", "DeadlockError", "real_clock", "run"]

T = TypeVar("T")


class Clock:
    """Wall-clock time that moves with the running event loop, real or virtual."""

    def __init__(self, start: datetime, loop: asyncio.AbstractEventLoop) -> None:
        self._start = start
        self._loop = loop
        self._since = loop.time()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time() - self._since)


class DeadlockError(RuntimeError):
    """All tasks wait for something that can no longer happen."""


class _NoInput(selectors.BaseSelector):
    """Moves the time forward instead of waiting for files."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._files: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError(f"after {self.now_s:.3f} s of virtual time everything waits for ever")
        self.now_s += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Registers a file. The loop calls this once, for the pipe by which it would wake itself."""
        key = selectors.SelectorKey(fileobj, int(fileobj), events, data)
        self._files[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._input = _NoInput()
        super().__init__(self._input)

    def time(self) -> float:
        return self._input.now_s


def run(main: Callable[[Clock], Coroutine[Any, Any, T]], *, start: datetime) -> T:
    """Runs `main(clock)` to its end in virtual time, beginning at `start`. Raises DeadlockError."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        clock = Clock(start, runner.get_loop())
        return runner.run(main(clock))


def real_clock() -> Clock:
    """Returns the machine's time, for clusters whose containers are real processes. Needs a running loop."""
    return Clock(datetime.now(UTC), asyncio.get_running_loop())
