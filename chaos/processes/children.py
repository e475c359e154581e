"""Processes that must not outlive their parent: they start with a death signal, and are ended by their id."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Child", "die_with", "spawn"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Makes the kernel kill the child when its parent is gone, for any reason. Runs in the child before its
    program."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent was killed in between
        os._exit(137)


class Child:
    """One child process. Its output goes to `log`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def kill(self) -> None:
        """Sends SIGKILL, and waits until the process is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()

    async def stop(self, grace_s: float = 3.0) -> int:
        """Sends SIGTERM, then SIGKILL after the grace. Returns the exit status."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await self.process.wait()
        except TimeoutError:
            await self.kill()
        assert self.process.returncode is not None
        return self.process.returncode

    def last_lines(self, count: int = 15) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-count:])


async def spawn(name: str, command: list[str], log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Starts a process and appends its output to a file: a restarted process continues the same file."""
    parent = os.getpid()
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
            preexec_fn=lambda: die_with(parent),
        )
    return Child(name, process, log)
