"""Runs one of our modules as a process that may be lost, and takes what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import sys

__all__ = ["printed_by"]

_REAP_S = 1.0


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


async def _ended(child: asyncio.subprocess.Process) -> bool:
    """Kills the child by its id. One stuck in the driver outlives that; it is left to the kernel."""
    if child.returncode is not None:
        return True
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), _REAP_S)
    return child.returncode is not None
