"""Yields the lines of a log file, each with the time that the container runtime has written, if any.

Three forms are known: the form of a container runtime (`/var/log/pods/...`), the form of `kubectl logs
--timestamps`, also with `--prefix`, and bare text. A progress bar rarely ends its line, so a long line is cut
into the same pieces as a container runtime would cut it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from detectors.sources.cri import CriLine, Joiner, parse_line

__all__ = ["TextLine", "lines_of"]

_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_PIECE_CHARS = 16 * 1024
_SECOND = rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d"
_STAMP = re.compile(
    rb"(?:\[pod/[^\s\]]{1,400}\] )?(?P<stamp>%b(?:(?:\.\d{1,9})?Z|\.\d{9}[+-]\d\d:\d\d))(?: |$)" % _SECOND
)
"""The runtime writes the time in the node's own zone, always with nine digits of a second. A program rarely
writes so many, so a time with an offset counts only with nine digits."""


class TextLine(msgspec.Struct, frozen=True):
    number: int
    """Line number as an editor counts; the number of the line in which this text ended."""
    text: str
    at: datetime
    """Time of the line. A line without a time of the container runtime is one second later than the line
    before."""
    is_dated: bool


def lines_of(file: Iterable[bytes]) -> Iterator[TextLine]:
    joiner = Joiner(_PIECE_CHARS)
    before = _BEGIN
    for number, data in enumerate(file, start=1):
        data = data.removesuffix(b"\n")
        of_runtime = parse_line(data)
        if of_runtime is not None:
            text, before = joiner.add(of_runtime), of_runtime.at
            if text is not None:
                yield TextLine(number, text, of_runtime.at, is_dated=True)
            continue
        dated = _dated(data)
        at, rest = dated if dated is not None else (before + timedelta(seconds=1), data)
        before = at
        for text in _pieces(rest.decode("utf-8", "replace"), at):
            yield TextLine(number, text, at, is_dated=dated is not None)


def _dated(data: bytes) -> tuple[datetime, bytes] | None:
    """Returns the time and the rest of a line of `kubectl logs --timestamps`; None if the line has no such
    time."""
    found = _STAMP.match(data)
    line = parse_line(found["stamp"] + b" stdout F ") if found is not None else None
    return (line.at, data[found.end() :]) if found is not None and line is not None else None


def _pieces(text: str, at: datetime) -> Iterator[str]:
    """Yields a long line in parts, as the container runtime hands it on."""
    joiner = Joiner(_PIECE_CHARS)
    begin = 0
    while len(text) - begin > _PIECE_CHARS:
        part = text[begin : begin + _PIECE_CHARS]
        begin += _PIECE_CHARS
        piece = joiner.add(CriLine(at=at, stream="stdout", partial=True, text=part))
        if piece is not None:
            yield piece
    last = joiner.add(CriLine(at=at, stream="stdout", partial=False, text=text[begin:]))
    yield last if last is not None else ""
