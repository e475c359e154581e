"""Parses one line of a container log as the container runtime writes it. Pure.

`2026-11-21T09:30:00.123456789Z stdout F text`: time, stream, P (part of a line) or F (its end), text.
Source: Kubernetes, CRI logging format.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["HEAD_BYTES_MAX", "CriLine", "Joiner", "parse_line"]

HEAD_BYTES_MAX = 64
"""Size of time, stream and tag. The runtime's bound on the length of a line is only for the text after
them."""


class CriLine(msgspec.Struct, frozen=True):
    at: datetime
    stream: str
    partial: bool
    text: str


def parse_line(data: bytes) -> CriLine | None:
    """Parses a line; returns None if it does not have this format."""
    parts = data.split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        return None
    tag = parts[2].split(b":", 1)[0]
    if tag not in (b"P", b"F"):
        return None
    at = _time(parts[0])
    if at is None:
        return None
    text = parts[3].decode("utf-8", "replace") if len(parts) == 4 else ""
    return CriLine(at=at, stream=parts[1].decode(), partial=tag == b"P", text=text)


class Joiner:
    """Joins the parts of long lines, per stream, up to a bound; the rest is left out.

    A progress bar may end its line only after hours. Text that the bar has overwritten is therefore returned
    with each part, and ends with a carriage return. No complete line does.
    """

    def __init__(self, chars_max: int) -> None:
        self._chars_max = chars_max
        self._parts: dict[str, list[str]] = {}
        self._chars: dict[str, int] = {}
        """Total length of all parts. Counting the parts again for each new one would take time in proportion
        to their number."""

    def add(self, line: CriLine) -> str | None:
        """Returns the complete line once its end has come, or the overwritten pieces of the line. Returns
        None if there is neither."""
        if not line.partial:
            if not self._parts:
                return line.text.rstrip("\r")
            return self._taken(line.stream, line.text).rstrip("\r")
        over, returned, rest = line.text.rpartition("\r")
        done = self._taken(line.stream, over) + returned if returned else None
        taken = self._chars.get(line.stream, 0)
        rest = rest[: self._chars_max - taken]
        if rest:
            self._parts.setdefault(line.stream, []).append(rest)
            self._chars[line.stream] = taken + len(rest)
        return done

    def _taken(self, stream: str, end: str) -> str:
        """Returns all parts of the line so far, and its end."""
        text = "".join(self._parts.pop(stream, []))
        self._chars.pop(stream, None)
        return text + end[: max(0, self._chars_max - len(text))] if text else end


def _time(data: bytes) -> datetime | None:
    """Parses an RFC 3339 time with up to nine digits of a second, of which Python keeps six; None if it is
    not one."""
    text = data.decode("ascii", "replace")
    if not 20 <= len(text) <= 40:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
