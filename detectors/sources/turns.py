"""Limits the rate of reading for all files of a node: files with much to read take turns. Pure.

With only a limit for each file, a hundred pods that print without end would take a whole core, while the
kernel's lines wait. A limit of bytes alone would not help: short lines that look like steps take a hundred
times as long as long lines. So a piece counts by its bytes, or by the time that it took, whichever is more.
"""

from __future__ import annotations

__all__ = ["Turns"]

_BURST_S = 0.1
"""Time in seconds by which small pieces may be read ahead of the rate."""
_SHARE = 0.5
"""Share of one core's time that reading may take."""


class Turns:
    """Times are of a clock that is never set."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Returns the time until the next piece may be read."""
        return max(0.0, self._free_at_s - _BURST_S - now_s)

    def used(self, size: int, took_s: float, now_s: float) -> None:
        """Accounts for a piece of `size` bytes that took `took_s` seconds to read."""
        self._free_at_s = max(now_s, self._free_at_s) + max(size / self._bytes_per_s, took_s / _SHARE)
