"""Matches literal templates with placeholders: `has compute capability {has:number}`. Pure.

Recipes define by these templates which lines of a log they search for. The agent searches for the lines while
a container prints (rules/signatures.py); the controller searches once more in the published lines.

The templates are no regular expressions: users write them, and they are matched with text that tenants write.
Matching never backtracks over the text that a placeholder took, and tries few places of a line, so the line's
length bounds its cost.

- Upper and lower case (of ASCII letters) are the same.
- The template matches complete words: `float16 is` does not match in `bfloat16 is`.
- `{name}` takes a word, `{name:text}` any text, each up to the literal that follows; `{name:integer}`,
  `{name:number}` (12.4.1) and `{name:size}` (25.5MB, 16 GiB) take as much as they can.
- `{{` and `}}` stand for braces.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from enum import StrEnum
from functools import lru_cache

import msgspec

from detectors.text.sizes import size_chars

__all__ = [
    "BadTemplateError",
    "Kind",
    "Line",
    "Place",
    "Placeholder",
    "Template",
    "line_of",
    "lowered",
    "parse",
    "pieces",
    "without_colours",
]

_PLACES_MAX = 8
_LITERAL_CHARS_MIN = 6
_CAPTURED_CHARS_MAX = 128
_AFTER_WORD = ".,;:!?)]}'\"`"
_DIGITS = frozenset(string.digits)
_COLOUR = "\x1b["
_BRACE = re.compile(r"[{}]")


class BadTemplateError(ValueError):
    """The template cannot be used. The message says what was expected instead."""


class Kind(StrEnum):
    WORD = "word"
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    SIZE = "size"


class Placeholder(msgspec.Struct, frozen=True):
    name: str
    kind: Kind


class Line(msgspec.Struct, frozen=True):
    """A line as templates read it: without colours, and the same text in lower case."""

    text: str
    lower: str


class Place(msgspec.Struct, frozen=True):
    """The place where a template fits into a line's text, and the captured values."""

    start: int
    end: int
    captured: dict[str, str]


class Template(msgspec.Struct, frozen=True):
    """`head`, then each placeholder with the literal that follows it. Literals are in lower case."""

    head: str
    rest: tuple[tuple[Placeholder, str], ...]

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kind of text that each placeholder takes."""
        return {placeholder.name: placeholder.kind for placeholder, _ in self.rest}

    def match(self, line: str) -> dict[str, str] | None:
        """Returns the captured values of the first place that fits; None if no place fits. Colours are
        ignored."""
        place = self.find(line_of(line))
        return place.captured if place is not None else None

    def find(self, line: Line) -> Place | None:
        """Returns the first place that fits; None if no place fits."""
        at = -1
        for _ in range(_PLACES_MAX):
            at = line.lower.find(self.head, at + 1)
            if at < 0:
                return None
            if _between_words(line.lower, at):
                place = self._place(line, at)
                if place is not None:
                    return place
        return None

    def _place(self, line: Line, start: int) -> Place | None:
        captured: dict[str, str] = {}
        at = start + len(self.head)
        for placeholder, literal in self.rest:
            end = _end(placeholder.kind, line.lower, at, literal)
            if end <= at or not line.lower.startswith(literal, end):
                return None
            captured[placeholder.name] = line.text[at:end]
            at = end + len(literal)
        return Place(start, at, captured) if _between_words(line.lower, at) else None


def line_of(text: str) -> Line:
    """Prepares a line once for all templates that read it."""
    text = without_colours(text)
    return Line(text, lowered(text))


@lru_cache(maxsize=2048)
def parse(text: str) -> Template:
    """Parses a template. Raises `BadTemplateError`. The result is cached, since the controller needs the same
    templates at every reconcile."""
    literals, placeholders = pieces(text)
    names = [placeholder.name for placeholder in placeholders]
    for name, times in Counter(names).items():
        if times > 1:
            raise BadTemplateError(f"expected each placeholder once, {{{_cut(name)}}} stands there twice")
    if not literals[0]:
        raise BadTemplateError("expected text before the first placeholder")
    if not all(literals[1:-1]):
        raise BadTemplateError("expected text between two placeholders")
    if sum(not char.isspace() for literal in literals for char in literal) < _LITERAL_CHARS_MIN:
        raise BadTemplateError(
            f"expected at least {_LITERAL_CHARS_MIN} characters outside placeholders, it would match too much"
        )
    head, *rest = map(lowered, literals)
    return Template(head, tuple(zip(placeholders, rest, strict=True)))


def pieces(text: str) -> tuple[list[str], list[Placeholder]]:
    """Returns the literals, one more than placeholders, and the placeholders. Raises `BadTemplateError`."""
    literals, placeholders = [], []
    literal: list[str] = []
    at = 0
    while (brace := _BRACE.search(text, at)) is not None:
        start = brace.start()
        literal.append(text[at:start])
        if text[start : start + 2] in ("{{", "}}"):
            literal.append(text[start])
            at = start + 2
            continue
        end = text.find("}", start)
        if text[start] == "}":
            raise BadTemplateError("expected { before }, or }} for a brace")
        if end < 0:
            raise BadTemplateError("expected } after {, or {{ for a brace")
        placeholders.append(_placeholder(text[start + 1 : end]))
        literals.append("".join(literal))
        literal = []
        at = end + 1
    literals.append("".join([*literal, text[at:]]))
    return literals, placeholders


def _placeholder(inner: str) -> Placeholder:
    name, colon, kind = inner.partition(":")
    if not (name.isascii() and name.isidentifier()):
        raise BadTemplateError(f"expected {{name}} of letters, digits and _, not {{{_cut(inner)}}}")
    if colon and kind not in list(Kind):
        raise BadTemplateError(
            f"expected {{{_cut(name)}}} to be one of {', '.join(Kind)}, not {_cut(kind)!r}"
        )
    return Placeholder(name, Kind(kind) if colon else Kind.WORD)


def _cut(text: str) -> str:
    """Shortens text for a message."""
    return text if len(text) <= _CAPTURED_CHARS_MAX else f"{text[:_CAPTURED_CHARS_MAX]}..."


def lowered(text: str) -> str:
    """Lowers only ASCII letters, so that positions are the same in both texts. Bytes do that quickly, in any
    script."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def without_colours(line: str) -> str:
    """Removes terminal codes. Each code ends with a letter, which must not be taken for the beginning of a
    word."""
    if _COLOUR not in line:
        return line
    head, *codes = line.split(_COLOUR)
    for code in codes:
        after = code.lstrip(string.digits + ";?")
        head += after[1:] if after[:1].isalpha() else f"{_COLOUR}{code}"
    return head


# --- how far a placeholder reaches --------------------------------------------------------------------------


def _end(kind: Kind, lower: str, at: int, literal: str) -> int:
    """Returns the end of the captured text; `at` or less if there is none."""
    match kind:
        case Kind.INTEGER:
            return _digits_end(lower, at)
        case Kind.NUMBER:
            return _number_end(lower, at)
        case Kind.SIZE:
            end = _number_end(lower, at)
            unit = size_chars(lower[end : end + 5]) if end > at else 0
            return end + unit if unit else at
        case Kind.WORD:
            end = _open_end(lower, at, literal)
            taken = lower[at : max(at, end)]
            if literal:
                return at if any(map(str.isspace, taken)) else end
            word = taken.split(maxsplit=1)[0] if taken and not taken[0].isspace() else ""
            return at + len(word.rstrip(_AFTER_WORD))
        case Kind.TEXT:
            return _open_end(lower, at, literal)


def _open_end(lower: str, at: int, literal: str) -> int:
    limit = min(len(lower), at + _CAPTURED_CHARS_MAX)
    return lower.find(literal, at, limit + len(literal)) if literal else limit


def _digits_end(lower: str, at: int) -> int:
    end = at
    while end < len(lower) and end - at < _CAPTURED_CHARS_MAX and lower[end] in _DIGITS:
        end += 1
    return end


def _number_end(lower: str, at: int) -> int:
    end = _digits_end(lower, at)
    while end > at and lower.startswith(".", end) and (further := _digits_end(lower, end + 1)) > end + 1:
        end = further
    return end


def _between_words(lower: str, at: int) -> bool:
    """Whether no word continues across this place."""
    return at == 0 or at >= len(lower) or not (_in_word(lower[at - 1]) and _in_word(lower[at]))


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"
