"""The shipped controller as a process beside a bench, with a stopwatch at its event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from chaos.bench.scale.stopwatch import Step, command, steps_of
from chaos.bench.usage import Usage, cpu_s, usage
from chaos.processes.children import Child, spawn
from chaos.scenarios.stage import StageError

__all__ = ["Controller", "running"]

SYNC_S = 600.0
QUIET_S = 30.0
LOOK_S = 0.05
_QUIET_WINDOW_S = 1.0
_QUIET_SHARE = 0.03
"""Share of a core below which the controller is quiet. The lease and the process' own timers take far
less."""


class _Line(msgspec.Struct):
    event: str = ""
    time: str = ""


class Controller:
    def __init__(self, child: Child, report: Path, began_s: float) -> None:
        self.child = child
        self.name = child.name
        self._report = report
        self._began_s = began_s
        self.started_at_s = self.in_step_at_s = 0.0
        """Moments by this machine's wall clock. First: the controller had loaded its modules, and logged its
        start. Second: its caches were in step with the API."""
        self.sync_cpu_s = 0.0

    def cpu_s(self) -> float:
        return cpu_s(self.child.pid)

    def usage(self) -> Usage:
        return usage(self.child.pid)

    def stall(self, since_s: float) -> Step | None:
        """Returns the longest step of the controller's event loop that has ended since `since_s`. Returns
        None if no step took a millisecond of CPU time."""
        found = (step for step in steps_of(self._report) if step.at_s > since_s)
        return max(found, key=lambda step: step.cpu_s, default=None)

    async def in_step(self) -> None:
        """Waits until the controller is in step with the API. Raises StageError if the controller ends
        before, or takes too long."""
        self.started_at_s = await self._logged("controller starts")
        self.in_step_at_s = await self._logged("in step with the API")
        self.sync_cpu_s = self.cpu_s()

    @property
    def sync_s(self) -> float:
        """Seconds from the start of the process until it was in step with the API, by the wall clock."""
        return self.in_step_at_s - self._began_s

    async def _logged(self, event: str) -> float:
        deadline_s = time.monotonic() + SYNC_S
        while time.monotonic() < deadline_s:
            for line in self.child.log.read_bytes().splitlines():
                told = msgspec.json.decode(line, type=_Line) if line.endswith(b"}") else _Line()
                if told.event == event:
                    return datetime.fromisoformat(told.time).timestamp()
            if not self.child.alive:
                break
            await asyncio.sleep(LOOK_S)
        raise StageError(f"{self.name}: no {event!r} in its log:\n{self.child.last_lines(8)}")

    async def quiet(self) -> None:
        """Waits until the controller does next to nothing, so that the next figure contains nothing of the
        last one. The wait ends after QUIET_S in any case."""
        deadline_s = time.monotonic() + QUIET_S
        while time.monotonic() < deadline_s:
            before_s, began_s = self.cpu_s(), time.monotonic()
            await asyncio.sleep(_QUIET_WINDOW_S)
            if self.cpu_s() - before_s < _QUIET_SHARE * (time.monotonic() - began_s):
                return


@asynccontextmanager
async def running(
    name: str, folder: Path, access: Sequence[str], settings: Sequence[str]
) -> AsyncIterator[Controller]:
    """Starts the controller, and ends it when the block ends. `access` are the arguments that name the API
    server and the credentials."""
    report = folder / f"{name}.steps"
    daemon = ["controller", *access, "--listen", "127.0.0.1:0", "--identity", name]
    for setting in settings:
        daemon += ["--set", setting]
    began_s = time.time()
    child = await spawn(name, command(report, *daemon), folder / f"{name}.log")
    try:
        yield Controller(child, report, began_s)
    finally:
        await child.stop()
