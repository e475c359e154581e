"""Runs a program as a process that may be lost: there is a result by its deadline, whatever the program does.

A driver call can hang permanently, and a process that is stuck in such a call is immune to SIGKILL. So the
output goes to files in memory, and not to pipes: the reader of a pipe would wait until the stuck process
closes its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import msgspec

__all__ = ["Ended", "run_within"]

_REAP_S = 2.0


class Ended(msgspec.Struct, frozen=True):
    status: int | None
    """Exit status. None: the process was given up at the deadline. Negative: the process was ended by that
    signal."""
    output: bytes
    errors: bytes
    stuck: bool = False
    """Whether the process did not end when it was killed."""

    @property
    def how(self) -> str:
        """Describes in words how a process ended that was not given up."""
        assert self.status is not None
        if self.status >= 0:
            return f"ended with status {self.status}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-self.status).name}"
        return f"was ended by signal {-self.status}"

    @property
    def last_words(self) -> str:
        text = (self.errors or self.output).decode("utf-8", "replace").strip()
        return text.rpartition("\n")[2].strip()


def run_within(command: list[str], deadline_s: float) -> Ended:
    """Runs the command. Raises `OSError` if it cannot be started. Processes that the command started itself
    end with it, unless they have left its process group."""
    child: subprocess.Popen[bytes] | None = None
    status, stuck = None, False
    with _memory_file() as output, _memory_file() as errors:
        try:
            with _signals_later():
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.wait(deadline_s)
        finally:
            if child is not None:
                stuck = not _end(child)
        return Ended(status, _content(output), _content(errors), stuck)


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Delays the signals that end this process until the block is over: a signal between the start of a child
    and the assignment of its name would leave the child alive. Handlers delay the signals. A mask would not
    do: a child would inherit it, and it applies to one thread only."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _end(child: subprocess.Popen[bytes]) -> bool:
    """Kills the child's whole process group. Returns False if the child survives."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_REAP_S)
    return child.returncode is not None


@contextlib.contextmanager
def _memory_file() -> Iterator[int]:
    """Yields a file in memory, so no writable folder is needed."""
    fd = os.memfd_create("check")
    try:
        yield fd
    finally:
        os.close(fd)


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
