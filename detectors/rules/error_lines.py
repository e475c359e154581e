"""Reads one line of a container's log: which row of log_errors.toml matches, and which part of a Python
traceback the line is. Pure.

first_error.py passes each line to this module, and decides over many lines which error is the first one.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise

from detectors.catalog.log_errors import LogErrorRow, Traceback
from detectors.rules.line_words import by_words, without_digits

__all__ = ["TRIGGERS", "Mark", "Rows", "compiled", "in_one_line", "is_exception", "mark_in", "row_in"]

# fmt: off
TRIGGERS = (
    "US", "_E", "AB", "()", "EE", "onn", "EL", "IL", "ER", "rro", "uc", "pt", "ted", "ing ", "ut", "os", "il",
    "ti", "al", "en", "ro", ": ", "et",
)
# fmt: on
"""Short parts of patterns. A pattern without a rare word is searched only if the first of these triggers that
it contains is in the line. Triggers are short, so that few cover most patterns, and the first ones are rare
in the lines of a healthy training. A pattern without any trigger is its own trigger, which costs a search for
each new line."""
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
"""Words that many healthy lines contain."""
_EXCEPTION = re.compile(r"([^\W\d][\w.]*)(?::|$)")
_LIKE_AN_EXCEPTION = re.compile(
    r"(?:Error|Exception|Warning|Interrupt|Exit|Empty|Full|Timeout|Failure|Abort|Cancelled|Errors)$"
)
_TRACEBACK_LINES_MAX = 64
"""Number of lines, the last ones, that are read of a traceback in one line. The exception is at the end."""
_Pattern = tuple[int, str, str]
"""The index of its row, the pattern, and the pattern without digits."""


class Mark(Enum):
    """A line that Python prints around exceptions."""

    TRACEBACK = auto()
    IN_THREAD = auto()
    """The traceback that follows ended a thread."""
    IGNORED = auto()
    """The exception that follows ends nothing."""
    CHAINED = auto()
    """The traceback that follows was raised because of the one before."""


_TRACEBACK = "Traceback (most recent call last)"
_MARKS = (
    (_TRACEBACK, Mark.TRACEBACK),
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
        self.main = _traceback_row(rows, Traceback.MAIN)
        self.thread = _traceback_row(rows, Traceback.THREAD)
        """Indices of the rows for a traceback, of the main thread and of another thread."""
        self.by_trigger: dict[str, list[_Pattern]] = {}
        self.by_word: dict[str, list[_Pattern]] = {}
        """Patterns that contain a complete word between two spaces. A line that matches such a pattern has
        the word as well."""
        for row_index, row in enumerate(rows):
            for pattern in row.patterns:
                words = without_digits(pattern)
                if word := _rare_word(words):
                    self.by_word.setdefault(word, []).append((row_index, pattern, words))
                else:
                    trigger = next((one for one in TRIGGERS if one in words), words)
                    self.by_trigger.setdefault(trigger, []).append((row_index, pattern, words))
        self.near = by_words(self._near)
        """Function that returns the patterns that may be in a line, in order of precedence, with the indices
        of their rows."""

    def row_index_of(self, code: str) -> int | None:
        return next((row_index for row_index, row in enumerate(self.rows) if row.code == code), None)

    def _near(self, line: str) -> tuple[tuple[int, str], ...]:
        groups = [patterns for trigger, patterns in self.by_trigger.items() if trigger in line]
        groups += [self.by_word[word] for word in self.by_word.keys() & line.split()]
        if not groups:
            return ()
        found = [
            (row_index, pattern) for group in groups for row_index, pattern, words in group if words in line
        ]
        return tuple(sorted(found))


@lru_cache(maxsize=4)
def compiled(rows: tuple[LogErrorRow, ...]) -> Rows:
    return Rows(rows)


def row_in(rows: Rows, line: str) -> int | None:
    """Returns the index of the first row that matches the line; None if no row matches."""
    for row_index, pattern in rows.near(line):
        if pattern in line:
            return row_index
    return None


def mark_in(line: str) -> Mark | None:
    if "raceback (m" not in line and "xception " not in line and "--- L" not in line:
        return None
    for text, mark in _MARKS:
        if text in line:
            return mark
    return None


def in_one_line(line: str) -> list[str]:
    """Returns the lines of a traceback that a logger has printed as one line, with escaped newlines, for
    example in a field of a JSON object. Returns nothing for any other line.

    >>> in_one_line('{"exc_info": "Traceback (most recent call last):\\\\nKeyError: \\'a\\'"}')
    ['Traceback (most recent call last):', "KeyError: 'a'"]
    """
    begin = line.find(_TRACEBACK) if "\\n" in line else -1
    if begin < 0:
        return []
    quote = "'" if line[begin - 1 : begin] == "'" else '"'
    text = re.split(rf"(?<!\\){quote}", line[begin:], maxsplit=1)[0]
    lines = text.replace('\\"', '"').split("\\n")
    return [*lines[:1], *lines[1:][-_TRACEBACK_LINES_MAX:]] if len(lines) > 1 else []


def is_exception(line: str) -> bool:
    """Whether the line ends a traceback: `torch.OutOfMemoryError: ...`, `KeyboardInterrupt`, `socket.timeout:
    ...`. Standard output may come in between: `loss: 0.5`, `INFO: saved` and `Epoch: 3` are no exceptions."""
    found = _EXCEPTION.match(line)
    if found is None:
        return False
    name = found[1]
    if "." in name or _LIKE_AN_EXCEPTION.search(name):
        return True
    # A class of the program itself has at least two capitalised words in its name.
    return name[0].isupper() and any(a.islower() and b.isupper() for a, b in pairwise(name))


def _rare_word(pattern: str) -> str:
    """Returns the longest word in a pattern that is between spaces, and is in few healthy lines; empty if
    there is none."""
    inner = (word for word in pattern.split(" ")[1:-1] if word.split() == [word])
    return max((word for word in inner if word.lower() not in _FREQUENT), key=len, default="")


def _traceback_row(rows: tuple[LogErrorRow, ...], traceback: Traceback) -> int:
    """Returns the index of the first row for the traceback, or of the last of all rows."""
    found = (row_index for row_index, row in enumerate(rows) if row.traceback is traceback)
    return next(found, len(rows) - 1)
