"""Keeps the last lines of one container's log, at most 2 KiB of UTF-8 including newlines. Part of pods.py."""

from __future__ import annotations

from collections import deque

from detectors.text.cutting import cut
from detectors.wire.training import TAIL_BYTES_MAX

__all__ = ["Tail"]


class Tail:
    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._bytes = 0

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def keep(self, line: str) -> None:
        if not line:
            return
        line = cut(line, TAIL_BYTES_MAX - 1)
        self._lines.append(line)
        self._bytes += _size(line)
        while self._bytes > TAIL_BYTES_MAX:
            self._bytes -= _size(self._lines.popleft())

    def drop(self) -> bool:
        """Returns True if there was a tail."""
        had = bool(self._lines)
        self._lines.clear()
        self._bytes = 0
        return had


def _size(line: str) -> int:
    """Returns the size of the line in bytes, with its newline."""
    return (len(line) if line.isascii() else len(line.encode())) + 1
