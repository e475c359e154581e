"""The file in memory in which a child tells each call that it makes, for the parent that waits for an answer
(child.py). A line on a pipe would wake the parent for each of some hundred calls of a sample.

Both read one clock: CLOCK_MONOTONIC is the same in all processes. A write that is read while it happens may
mix two calls; then the child has just made progress, and the next read tells the truth.
"""

from __future__ import annotations

import os
import time

__all__ = ["last_call", "tell_call"]

_BYTES = 128


def tell_call(file: int, name: str) -> None:
    """The child begins this call now."""
    os.pwrite(file, f"{time.monotonic():.6f} {name}".encode()[:_BYTES].ljust(_BYTES), 0)


def last_call(file: int) -> tuple[float, str]:
    """When the child began its last call, in seconds of the monotonic clock, and its name; 0 before the
    first."""
    begun_s, _, name = os.pread(file, _BYTES, 0).decode("utf-8", "replace").strip().partition(" ")
    try:
        return float(begun_s), name
    except ValueError:
        return 0.0, ""
