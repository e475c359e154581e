"""Finds the lines that recipes search for in a container's log. Pure; folds/pods.py publishes them,
agent/recipe_lines.py counts them.

All of these lines are text of the tenant. The controller decides whether a recipe fits: the agent only keeps
the lines, the first for each template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from itertools import chain
from operator import itemgetter

import msgspec

from detectors.catalog.signature_rows import LogMatch, SignatureRow
from detectors.rules.line_words import by_words, without_digits
from detectors.text.cutting import cut
from detectors.text.log_template import (
    BadTemplateError,
    Line,
    Place,
    Template,
    line_of,
    lowered,
    parse,
    without_colours,
)
from detectors.text.sizes import parse_size
from detectors.wire.fitting import fitted
from detectors.wire.training import KNOWN_LINES_MAX, LINE_BYTES_MAX, KnownLine, Signature

__all__ = ["Hit", "Known", "Signatures", "known_again", "observe", "read", "shown_by", "signatures_of"]

_LINE_CHARS_MAX = 16 * 1024
_PARTS = ("cuda", "paddle", "float", "alloc")
"""Parts of heads. Most heads of the built-in templates contain one of these, and most lines contain none."""


class _Sought(msgspec.Struct, frozen=True):
    """One template, which several recipes may have."""

    written: str
    template: Template
    signature: str
    """The first recipe with the template. Its name is published with the line."""
    issues: tuple[tuple[str, LogMatch], ...]
    """The recipes that match by the template; none if the template only verifies."""


class Signatures(msgspec.Struct, frozen=True):
    """All templates that are searched for."""

    names: tuple[str, ...] = ()
    """The recipes that search for lines of an issue."""
    problems: tuple[str, ...] = ()
    """Messages about templates that cannot be used and are left out."""
    near: Callable[[str], tuple[_Sought, ...]] = lambda _: ()
    """Function that returns the templates whose head may be in a line, by its words."""


class Hit(msgspec.Struct, frozen=True):
    """A line that one template matches."""

    written: str
    """The template."""
    signature: str
    text: str
    issues: tuple[str, ...]
    """The recipes whose issue the line shows; none if a recipe's own comparison of the captured values shows
    that it is not the issue."""


class Known(msgspec.Struct, frozen=True):
    """The matching lines of one container."""

    lines: tuple[KnownLine, ...] = ()
    seen: frozenset[tuple[str, bool]] = frozenset()
    """Templates, each with whether the line shows an issue: a line that shows one is kept in addition to a
    line that does not."""


def signatures_of(rows: tuple[SignatureRow, ...], own: Iterable[Signature] = ()) -> Signatures:
    """Returns the templates of the built-in `rows` and the user's `own` recipes. A user's recipe replaces the
    built-in one with its name."""
    by_name = {row.name: row for row in rows} | {one.name: _row_of(one) for one in own}
    return _compiled(tuple(by_name.values()))


@lru_cache(maxsize=2)
def _compiled(rows: tuple[SignatureRow, ...]) -> Signatures:
    """Compiles the templates once, since that takes milliseconds, which a simulation of thousands of agents
    would spend for each."""
    problems: list[str] = []
    sought: dict[str, _Sought] = {}
    for row in rows:
        wanted = [(match.log, ((row.name, match),)) for match in row.match]
        verifying = [(written, ()) for written in row.verify]
        for written, issues in (*wanted, *verifying):
            try:
                one = sought.get(written) or _Sought(written, parse(written), row.name, ())
            except BadTemplateError as error:
                problems.append(
                    f"recipe {row.name}: template {written!r}: {error}; the agent does not "
                    "look for this template"
                )
                continue
            sought[written] = msgspec.structs.replace(one, issues=(*one.issues, *issues))
    return Signatures(
        names=tuple(row.name for row in rows if row.match),
        problems=tuple(problems),
        near=_finder(tuple(sought.values())),
    )


def _finder(sought: tuple[_Sought, ...]) -> Callable[[str], tuple[_Sought, ...]]:
    """Returns a function from the words of a line to the templates that may match it."""
    by_part: dict[str, list[tuple[int, str, _Sought]]] = {}
    for number, one in enumerate(_by_head(sought)):
        head = without_digits(one.template.head)
        part = next((part for part in _PARTS if part in head), head)
        by_part.setdefault(part, []).append((number, head, one))

    def near(words: str) -> tuple[_Sought, ...]:
        lower = lowered(words)
        held = [those for part, those in by_part.items() if part in lower]
        found = [(number, one) for those in held for number, head, one in those if head in lower]
        return tuple(one for _, one in sorted(found, key=itemgetter(0)))

    return by_words(near)


def _by_head(sought: tuple[_Sought, ...]) -> Iterator[_Sought]:
    """Yields the templates so that those with the same head are together."""
    by_head: dict[str, list[_Sought]] = {}
    for one in sought:
        by_head.setdefault(one.template.head, []).append(one)
    return chain.from_iterable(by_head.values())


def read(signatures: Signatures, text: str) -> tuple[Hit, ...]:
    """Returns the matches in a line, or in each piece of a line that overwrites itself. Most lines contain
    none of the heads."""
    text = text[:_LINE_CHARS_MAX]
    found = signatures.near(without_colours(text))
    if not found:
        return ()
    line = line_of(text)
    lines = map(line_of, line.text.split("\r")) if "\r" in line.text else [line]
    return tuple(hit for each in lines for one in found if (hit := _hit(one, each)) is not None)


def observe(known: Known, hits: Iterable[Hit], at: datetime) -> Known:
    """Returns the state with the first line for each template."""
    for hit in hits:
        key = (hit.written, bool(hit.issues))
        if key in known.seen:
            continue
        line = fitted(KnownLine, signature=hit.signature, at=at, text=hit.text, issue=bool(hit.issues))
        has_it = any(kept.text == line.text for kept in known.lines)
        has_room = len(known.lines) < KNOWN_LINES_MAX
        lines = known.lines if has_it or not has_room else (*known.lines, line)
        known = Known(lines, known.seen | {key})
    return known


def known_again(signatures: Signatures, lines: Iterable[KnownLine]) -> Known:
    """Returns the state from what an earlier run of the agent published."""
    lines = tuple(lines)
    hits = (hit for line in lines for hit in read(signatures, line.text))
    return Known(lines, frozenset((hit.written, bool(hit.issues)) for hit in hits))


def shown_by(hits: Iterable[Hit]) -> frozenset[str]:
    """Returns the recipes whose issue one line shows, each once."""
    return frozenset(name for hit in hits for name in hit.issues)


def _row_of(own: Signature) -> SignatureRow:
    match = tuple(LogMatch(log=text) for text in own.match)
    return SignatureRow(name=own.name, match=match, verify=tuple(own.verify), source="its Recipe object")


def _hit(sought: _Sought, line: Line) -> Hit | None:
    place = sought.template.find(line)
    if place is None:
        return None
    issues = (name for name, match in sought.issues if _shows(match, place))
    return Hit(sought.written, sought.signature, _cut(line.text, place), tuple(dict.fromkeys(issues)))


def _shows(match: LogMatch, place: Place) -> bool:
    return all(_at_least(place.captured[left], place.captured[right]) for left, right in match.at_least)


def _at_least(left: str, right: str) -> bool:
    left_bytes, right_bytes = parse_size(left), parse_size(right)
    return left_bytes is not None and right_bytes is not None and left_bytes >= right_bytes


def _cut(text: str, place: Place) -> str:
    """Cuts a line. A line that is too long begins with the match, unless the match is in its first part."""
    fits = len(text[: place.end].encode("utf-8", "replace")) <= LINE_BYTES_MAX
    return cut(text if fits else text[place.start :], LINE_BYTES_MAX)
