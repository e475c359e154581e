"""`python -m chaos.bench.scale.stopwatch FILE COMMAND...`: runs a daemon of Rekindle and times its event
loop.

The daemon is the shipped one. For each step of its event loop that takes a millisecond of CPU time or more,
FILE gets a line of JSON, so that the longest stall is known even on a machine that others use at the same
time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from detectors.commands.main import main as rekindle

__all__ = ["Step", "command", "steps_of"]

LEAST_S = 0.001


class Step(msgspec.Struct, frozen=True):
    """One step of the event loop: a callback, or a task from one await to the next."""

    at_s: float
    """Moment at which the step ended, by this machine's wall clock."""
    cpu_s: float
    what: str
    """Name of the coroutine or function that ran."""


def command(report: Path, *daemon: str) -> list[str]:
    return [sys.executable, "-m", "chaos.bench.scale.stopwatch", str(report), *daemon]


def steps_of(report: Path) -> Iterator[Step]:
    """Returns all steps that have been reported so far. An incomplete line at the end is left out."""
    decoder = msgspec.json.Decoder(Step)
    lines = report.read_bytes().splitlines(keepends=True) if report.exists() else []
    return (decoder.decode(line) for line in lines if line.endswith(b"\n"))


def timed(run: Callable[[asyncio.Handle], None], report: IO[bytes]) -> Callable[[asyncio.Handle], None]:
    """Wraps `Handle._run`, by which asyncio runs every callback and every step of a task. To read the clock
    of CPU time is a system call. The other clock needs none, and shows for most steps that they were short,
    so that the clock of CPU time is read only once for these steps."""

    def timed_run(handle: asyncio.Handle) -> None:
        began_s, cpu_s = time.perf_counter(), time.thread_time()
        try:
            run(handle)
        finally:
            if time.perf_counter() - began_s >= LEAST_S:
                took_s = time.thread_time() - cpu_s
                if took_s >= LEAST_S:
                    step = Step(time.time(), round(took_s, 6), _what(handle))
                    report.write(msgspec.json.encode(step) + b"\n")

    return timed_run


def _what(handle: asyncio.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", "a task"))
    return str(getattr(callback, "__qualname__", "a callback"))


def main() -> int:
    with Path(sys.argv[1]).open("ab", buffering=0) as report:
        handle: Any = asyncio.Handle  # its `_run` is asyncio's own method
        handle._run = timed(handle._run, report)
        sys.argv = [sys.argv[0], *sys.argv[2:]]
        return rekindle()


if __name__ == "__main__":
    raise SystemExit(main())
