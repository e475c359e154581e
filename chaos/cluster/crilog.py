"""Writes a container's output into the log file of a container runtime: `TIME STREAM F|P line`,
unbuffered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

__all__ = ["CriLog"]

LINE_BYTES_MAX = 16 * 1024
"""Maximum size of a line. A longer line is cut into parts with the tag P; the last part has the tag F."""


class CriLog:
    def __init__(self, path: Path, now: Callable[[], datetime]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._now = now
        self._rest: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> None:
        *lines, rest = (self._rest.get(stream, b"") + data).split(b"\n")
        for line in lines:
            self._write(stream, line)
        while len(rest) > LINE_BYTES_MAX:
            self._record(stream, "P", rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._rest[stream] = rest

    def close(self) -> None:
        """Writes the rest that came without a newline, and closes the file."""
        for stream, rest in self._rest.items():
            if rest:
                self._write(stream, rest)
        self._file.close()

    def _write(self, stream: str, line: bytes) -> None:
        while len(line) > LINE_BYTES_MAX:
            self._record(stream, "P", line[:LINE_BYTES_MAX])
            line = line[LINE_BYTES_MAX:]
        self._record(stream, "F", line)

    def _record(self, stream: str, tag: str, content: bytes) -> None:
        at = self._now().strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
        self._file.write(f"{at} {stream} {tag} ".encode() + content + b"\n")
