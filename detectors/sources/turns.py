"""One rate of reading for all files of a node: each that has much to tell is read in its turn. Pure.

A limit for each file alone would let a hundred pods that print without end take a whole core, while the
kernel's lines wait.
"""

from __future__ import annotations

__all__ = ["Turns"]

_BURST_S = 0.1
"""So far ahead of the rate small pieces are read at once."""


class Turns:
    """Times are of a clock that is never set."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def is_free(self, now_s: float) -> bool:
        return self._free_at_s - _BURST_S <= now_s

    def used(self, size: int, now_s: float) -> None:
        """So many bytes were read out of turn."""
        self._free_at_s = max(now_s, self._free_at_s) + size / self._bytes_per_s

    def take(self, size: int, now_s: float) -> float:
        """Seconds until the turn of one that wants to read so many bytes; they are accounted for. Turns come
        in the order in which they were taken."""
        wait_s = max(0.0, self._free_at_s - _BURST_S - now_s)
        self.used(size, now_s)
        return wait_s
