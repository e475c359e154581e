"""Runs one of our modules as a process that may be lost, and takes what it prints: once, or each time it is
asked."""

from __future__ import annotations

import asyncio
import contextlib
import sys

__all__ = ["LastingChild", "SilentError", "printed_by"]

_REAP_S = 1.0
_LINE_BYTES_MAX = 2**20


async def printed_by(
    module: str,
    *arguments: str,
    deadline_s: float,
    outlived: list[asyncio.subprocess.Process] | None = None,
) -> tuple[bytes, int | None]:
    """Its output and exit status. Raises `TimeoutError`, or `OSError` where it cannot be started.

    A child that does not end when it is killed is put into `outlived`.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(), deadline_s)
    finally:
        if not await _ended(child) and outlived is not None:
            outlived.append(child)
    return output, child.returncode


class SilentError(Exception):
    """The child said nothing for too long. The message is the last that it did say: what it is doing."""


class LastingChild:
    """A process that is asked by a line, which may be empty. It answers with lines of text, of which the last
    begins with a brace. It is started when it is asked first, and ended by `end`."""

    def __init__(self, module: str, *arguments: str, outlived: list[asyncio.subprocess.Process]) -> None:
        """A child that does not end when it is killed is put into `outlived`."""
        self._module = module
        self._arguments = arguments
        self._outlived = outlived
        self._child: asyncio.subprocess.Process | None = None

    @property
    def is_started(self) -> bool:
        return self._child is not None

    async def ask(self, deadline_s: float, question: bytes = b"") -> bytes:
        """The last line of the answer. Raises `SilentError` if any line takes longer than `deadline_s`,
        `EOFError` where the child has ended, or `OSError` where it cannot be started. After each of them, as
        after a cancellation, `end` it."""
        child = self._child = self._child or await self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        doing = "its start"
        try:
            child.stdin.write(question + b"\n")
            while True:
                async with asyncio.timeout(deadline_s):
                    line = await child.stdout.readline()
                if not line:
                    raise EOFError(f"ended with status {await child.wait()} in {doing}")
                if line.startswith(b"{"):
                    return line
                doing = line.decode("utf-8", "replace").strip()
        except TimeoutError:
            raise SilentError(doing) from None

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None and not await _ended(child):
            self._outlived.append(child)

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES_MAX,
        )


async def _ended(child: asyncio.subprocess.Process) -> bool:
    """Kills the child by its id. One stuck in the driver outlives that; it is left to the kernel."""
    if child.returncode is not None:
        return True
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), _REAP_S)
    return child.returncode is not None
