"""Keeps what the observer process has reported so far, and waits until the observer has seen something."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from chaos.bench.seen import GONE, READY, Seen, command
from chaos.processes.children import die_with
from chaos.scenarios.stage import StageError

__all__ = ["LIMIT_S", "Sight", "observing"]

LIMIT_S = 60.0
LINE_BYTES_MAX = 1024 * 1024


class Sight:
    """`now` is the newest known state of each object that exists; `events` are all events since the last
    `forget`."""

    def __init__(self) -> None:
        self.now: dict[tuple[str, str], Seen] = {}
        """Objects by kind and uid."""
        self.events: list[Seen] = []
        self._changed = asyncio.Event()
        self._ended = False

    def end(self) -> None:
        """Records that the observer has ended and will report nothing more."""
        self._ended = True
        self._changed.set()

    def take(self, seen: Seen) -> None:
        self.events.append(seen)
        if GONE in seen.facts:
            self.now.pop((seen.kind, seen.uid), None)
        else:
            self.now[seen.kind, seen.uid] = seen
        self._changed.set()

    def forget(self) -> None:
        """Drops all earlier events, because a new round begins."""
        self.events.clear()

    def all(self, kind: str) -> list[Seen]:
        return [seen for (of_kind, _), seen in self.now.items() if of_kind == kind]

    def first(self, kind: str, name: str, *facts: str) -> float | None:
        """Returns when that object was first seen with all of these facts. Returns None if it was not."""
        return self.when(
            s for s in self.events if (s.kind, s.name) == (kind, name) and {*facts} <= {*s.facts}
        )

    @staticmethod
    def when(events: Iterable[Seen]) -> float | None:
        return min((seen.at_s for seen in events), default=None)

    async def until(self, what: str, found: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Waits until `found` returns true. Raises StageError, which names what was awaited."""
        try:
            async with asyncio.timeout(limit_s):
                while not found():
                    if self._ended:
                        raise StageError(f"no {what}: the observer has ended")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise StageError(f"no {what} within {limit_s:g} s") from error

    async def moment(self, what: str, kind: str, name: str, *facts: str) -> float:
        """Waits until that object is seen with all of these facts, and returns the moment."""
        await self.until(what, lambda: self.first(kind, name, *facts) is not None)
        at_s = self.first(kind, name, *facts)
        assert at_s is not None
        return at_s


@asynccontextmanager
async def observing(access: Sequence[str], log: Path) -> AsyncIterator[Sight]:
    """Runs the observer until the block ends. When the block begins, the observer has seen everything that
    exists."""
    parent = os.getpid()
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command(access),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LINE_BYTES_MAX,
            preexec_fn=lambda: die_with(parent),
        )
    sight = Sight()
    reading = asyncio.create_task(_read(process, sight))
    try:
        await sight.until("observer", lambda: any(seen.kind == READY for seen in sight.events))
        yield sight
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


async def _read(process: asyncio.subprocess.Process, sight: Sight) -> None:
    assert process.stdout is not None
    decoder = msgspec.json.Decoder(Seen)
    async for line in process.stdout:
        sight.take(decoder.decode(line))
    sight.end()
