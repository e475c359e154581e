"""Runs one of our modules as a process that may hang and then be abandoned, and takes its output: once, or
one line for each question."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

from detectors.sources.calls_file import last_call

__all__ = ["LastingChild", "SilentError", "printed_by", "reaped"]

_REAP_S = 1.0
_LINE_BYTES_MAX = 2**20


async def printed_by(
    module: str,
    *arguments: str,
    deadline_s: float,
    outlived: list[asyncio.subprocess.Process] | None = None,
) -> tuple[bytes, int | None]:
    """Returns the child's output and exit status. Raises `TimeoutError`, or `OSError` if the child cannot be
    started. A child that does not end when it is killed is put into `outlived`."""
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
        async with asyncio.timeout(deadline_s):
            output, _ = await child.communicate()
    finally:
        if not await reaped(child) and outlived is not None:
            outlived.append(child)
    return output, child.returncode


class SilentError(Exception):
    """The child gave no answer for too long. The message names the call that the child is in, as the child
    reported it."""


class LastingChild:
    """A process that reads a question as one line, which may be empty, and answers with one line. The first
    question starts the process, and `end` ends it.

    With `tells_calls` the last argument of the child is a file in memory into which it writes each call that
    it makes (calls_file.py). These writes wake no process: the file is read only when an answer takes long.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        outlived: list[asyncio.subprocess.Process],
        tells_calls: bool = False,
        is_lean: bool = False,
    ) -> None:
        """Takes the module to run. A child that does not end when it is killed is put into `outlived`. A lean
        child imports only the standard library, and starts in a third of the time."""
        self._module = module
        self._arguments = arguments
        self._outlived = outlived
        self._tells_calls = tells_calls
        self._is_lean = is_lean
        self._child: asyncio.subprocess.Process | None = None
        self._calls = -1

    @property
    def is_started(self) -> bool:
        return self._child is not None

    async def ask(self, deadline_s: float, question: bytes = b"") -> bytes:
        """Returns the answer. Raises `SilentError` if the answer, or any call that the child records, takes
        longer than `deadline_s`; `EOFError` if the child has ended or its answer is too long; `OSError` if it
        cannot be started. After each of these errors, and after a cancellation, call `end`."""
        asked_s = time.monotonic()
        child = self._child = self._child or await self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(question + b"\n")
        answer = asyncio.ensure_future(child.stdout.readline())
        try:
            since_s = asked_s
            while (left_s := since_s + deadline_s - time.monotonic()) > 0:
                await asyncio.wait({answer}, timeout=left_s)
                if answer.done():
                    break
                since_s, _ = self._call(asked_s)
            else:
                raise SilentError(self._call(asked_s)[1])
        finally:
            answer.cancel()
        try:
            line = answer.result()
        except ValueError:
            raise EOFError(f"answered with more than {_LINE_BYTES_MAX} bytes") from None
        if not line.endswith(b"\n"):  # the child has ended, perhaps in the middle of its answer
            doing = self._call(asked_s)[1]
            try:
                async with asyncio.timeout(_REAP_S):
                    status = await child.wait()
            except TimeoutError:  # A child that is killed closes its files, and the driver may block that.
                raise SilentError(f"its end, in {doing}") from None
            raise EOFError(f"ended with status {status} in {doing}")
        return line

    async def end(self) -> None:
        child, self._child = self._child, None
        if self._calls >= 0:
            os.close(self._calls)
            self._calls = -1
        if child is not None and not await reaped(child):
            self._outlived.append(child)

    def _call(self, asked_s: float) -> tuple[float, str]:
        """Returns the start time of the child's current call, and the name of the call."""
        begun_s, name = last_call(self._calls) if self._tells_calls else (0.0, "")
        return (begun_s, name) if begun_s >= asked_s else (asked_s, "its start")

    async def _started(self) -> asyncio.subprocess.Process:
        if self._tells_calls:
            self._calls = os.memfd_create("calls", os.MFD_CLOEXEC)
        calls = (self._calls,) if self._tells_calls else ()
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *(_lean(self._module) if self._is_lean else ("-m", self._module)),
            *self._arguments,
            *map(str, calls),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES_MAX,
            pass_fds=calls,
        )


def _lean(module: str) -> tuple[str, ...]:
    """Returns arguments that start Python without site's search for packages and without the environment, and
    that call `main` of the compiled module: a script would be compiled at each start."""
    folder, name = Path(__file__).parent, module.rpartition(".")[2]
    program = f"import sys; sys.path.append({str(folder)!r}); import {name}; sys.exit({name}.main())"
    return "-I", "-S", "-c", program


async def reaped(child: asyncio.subprocess.Process) -> bool:
    """Kills the child by its id; returns False if it still exists. A child that is stuck in the driver
    survives the kill, and is left to the kernel."""
    if child.returncode is not None:
        return True
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    with contextlib.suppress(TimeoutError):
        # Do not use wait_for: before Python 3.12 it loses a cancellation that comes together with the child's
        # end.
        async with asyncio.timeout(_REAP_S):
            await child.wait()
    return child.returncode is not None
