"""Writes and reads the file in memory in which a child records each of its calls. The parent reads the file
while it waits for an answer (child.py). A line on a pipe would wake the parent for each of several hundred
calls of a sample.

Both processes read one clock: CLOCK_MONOTONIC is the same in all processes. A read during a write may mix two
calls; in that case the child has just made progress, and the next read is correct.
"""

from __future__ import annotations

import os
import time

__all__ = ["last_call", "tell_call"]

_BYTES = 128


def tell_call(file: int, name: str) -> None:
    """Records that the child begins this call now."""
    os.pwrite(file, f"{time.monotonic():.6f} {name}".encode()[:_BYTES].ljust(_BYTES), 0)


def last_call(file: int) -> tuple[float, str]:
    """Returns the start of the child's last call, in seconds of the monotonic clock, and its name. The time
    is 0 before the first call."""
    begun_s, _, name = os.pread(file, _BYTES, 0).decode("utf-8", "replace").strip().partition(" ")
    try:
        return float(begun_s), name
    except ValueError:
        return 0.0, ""
