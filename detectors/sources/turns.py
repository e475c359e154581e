"""One rate of reading for all files of a node: each that has much to tell is read in its turn. Pure.

A limit for each file alone would let a hundred pods that print without end take a whole core, while the
kernel's lines wait. A limit of bytes alone would, too: short lines that look like steps take a hundred times
as long as long ones. So a piece counts by its bytes, or by the time that it took, whichever is more.
"""

from __future__ import annotations

__all__ = ["Turns"]

_BURST_S = 0.1
"""So far ahead of the rate small pieces are read at once."""
_SHARE = 0.5
"""Of one core's time, at most."""


class Turns:
    """Times are of a clock that is never set."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Until the next piece may be read."""
        return max(0.0, self._free_at_s - _BURST_S - now_s)

    def used(self, size: int, took_s: float, now_s: float) -> None:
        """So many bytes were read in so many seconds."""
        self._free_at_s = max(now_s, self._free_at_s) + max(size / self._bytes_per_s, took_s / _SHARE)
