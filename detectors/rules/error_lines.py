"""One line of a log: which row of log_errors.toml names it, and what of a Python traceback it is. Pure.

First stop of the lines in first_error.py, which decides over many lines which error is the first one.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise

from detectors.catalog.log_errors import LogErrorRow, Traceback
from detectors.rules.line_words import by_words, without_digits

__all__ = ["TRIGGERS", "Mark", "Rows", "compiled", "is_exception", "mark_in", "row_in"]

# fmt: off
TRIGGERS = (
    "US", "_E", "AB", "()", "EE", "onn", "EL", "IL", "ER", "rro", "uc", "pt", "ted", "ing ", "ut", "os", "il",
    "ti", "al", "en", "ro", ": ", "et",
)
# fmt: on
"""A pattern without a rare word is looked for only where the first of these that it holds is in the line.
They are short, so that few cover most patterns, and the first ones are rare in the lines of a healthy
training. A pattern without any is its own trigger, which costs a search for each new line."""
_FREQUENT = frozenset(
    {"a", "an", "and", "are", "at", "be", "been", "by", "for", "from", "has", "have", "in", "is", "it", "no"}
    | {
        "not",
        "of",
        "on",
        "one",
        "or",
        "out",
        "that",
        "the",
        "this",
        "to",
        "was",
        "we",
        "while",
        "with",
        "all",
    }
    | {"your", "when", "after", "before", "more", "loss", "data", "step", "file", ":", "=", "/"}
)
"""Words that many healthy lines hold."""
_EXCEPTION = re.compile(r"([^\W\d][\w.]*)(?::|$)")
_LIKE_AN_EXCEPTION = re.compile(
    r"(?:Error|Exception|Warning|Interrupt|Exit|Empty|Full|Timeout|Failure|Abort|Cancelled|Errors)$"
)
_Pattern = tuple[int, str, str]
"""The place of its row, the pattern, and the same without digits."""


class Mark(Enum):
    """A line that Python prints around exceptions."""

    TRACEBACK = auto()
    IN_THREAD = auto()
    """The traceback that follows ended a thread."""
    IGNORED = auto()
    """The exception that follows ends nothing."""
    CHAINED = auto()
    """The traceback that follows was raised because of the one before."""


_MARKS = (
    ("Traceback (most recent call last)", Mark.TRACEBACK),
    ("Exception in thread ", Mark.IN_THREAD),
    ("Exception ignored ", Mark.IGNORED),
    ("--- Logging error ---", Mark.IGNORED),
    ("During handling of the above exception", Mark.CHAINED),
    ("The above exception was the direct cause", Mark.CHAINED),
)


class Rows:
    """The catalogue, in order of precedence."""

    def __init__(self, rows: tuple[LogErrorRow, ...]) -> None:
        self.rows = rows
        self.main = _traceback_place(rows, Traceback.MAIN)
        self.thread = _traceback_place(rows, Traceback.THREAD)
        """Places of the rows that name a traceback."""
        self.by_trigger: dict[str, list[_Pattern]] = {}
        self.by_word: dict[str, list[_Pattern]] = {}
        """Patterns that hold a whole word between two spaces, which a line that they match has as well."""
        for place, row in enumerate(rows):
            for pattern in row.patterns:
                words = without_digits(pattern)
                if word := _rare_word(words):
                    self.by_word.setdefault(word, []).append((place, pattern, words))
                else:
                    trigger = next((one for one in TRIGGERS if one in words), words)
                    self.by_trigger.setdefault(trigger, []).append((place, pattern, words))
        self.near = by_words(self._near)
        """The patterns that may be in a line, in order of precedence, with the places of their rows."""

    def place_of(self, code: str) -> int | None:
        return next((place for place, row in enumerate(self.rows) if row.code == code), None)

    def _near(self, line: str) -> tuple[tuple[int, str], ...]:
        groups = [patterns for trigger, patterns in self.by_trigger.items() if trigger in line]
        groups += [self.by_word[word] for word in self.by_word.keys() & line.split()]
        if not groups:
            return ()
        found = [(place, pattern) for group in groups for place, pattern, words in group if words in line]
        return tuple(sorted(found))


@lru_cache(maxsize=4)
def compiled(rows: tuple[LogErrorRow, ...]) -> Rows:
    return Rows(rows)


def row_in(rows: Rows, line: str) -> int | None:
    """The place of the first row that matches the line."""
    for place, pattern in rows.near(line):
        if pattern in line:
            return place
    return None


def mark_in(line: str) -> Mark | None:
    if "raceback (m" not in line and "xception " not in line and "--- L" not in line:
        return None
    for text, mark in _MARKS:
        if text in line:
            return mark
    return None


def is_exception(line: str) -> bool:
    """Whether it ends a traceback: `torch.OutOfMemoryError: ...`, `KeyboardInterrupt`, `socket.timeout: ...`.
    Standard output may come in between: `loss: 0.5`, `INFO: saved` and `Epoch: 3` are no exceptions."""
    found = _EXCEPTION.match(line)
    if found is None:
        return False
    name = found[1]
    if "." in name or _LIKE_AN_EXCEPTION.search(name):
        return True
    # Somebody's own class: at least two humps.
    return name[0].isupper() and any(a.islower() and b.isupper() for a, b in pairwise(name))


def _rare_word(pattern: str) -> str:
    """The longest word within a pattern that stands between spaces, and is in few healthy lines; empty if
    there is none."""
    inner = (word for word in pattern.split(" ")[1:-1] if word.split() == [word])
    return max((word for word in inner if word.lower() not in _FREQUENT), key=len, default="")


def _traceback_place(rows: tuple[LogErrorRow, ...], traceback: Traceback) -> int:
    """Of the first row for it, or of the last of all."""
    found = (place for place, row in enumerate(rows) if row.traceback is traceback)
    return next(found, len(rows) - 1)
