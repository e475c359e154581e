"""One line of a log: which row of log_errors.toml names it, and what of a Python traceback it is. Pure.

First stop of the lines in logs.py, which decides over many lines which error is the first one.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise

import msgspec

from detectors.catalog.log_errors import LogErrorRow, Traceback

__all__ = ["Mark", "Rows", "compiled", "is_exception", "mark_in", "row_in"]

# fmt: off
_TRIGGERS = (
    "rror", "ail", "ect", "with", "ERR", "xce", "ive", "ignal", "not ", "EI0", "imeou", "le ", "ed o",
    "ill", "t o", "t c", "ermi", "9999", "or ", "all", " in", " fa", "ost", "EL0", "_STAT", "HCCL_",
    "sto", "tatus", "rrupt", "EJ0", "ory", "en ", " re", "DUE", "EZ", "EE", "EH", "re ", "orted", "Ret",
    "EAD", "SIG", "LED", "ync", "nccl", "de ", "nde", "hat", " is ", "kind:", "down", "exitc", "ms,",
    " dead", "UNAVA", "Peer", "wandb", "ime", "on:", "queue", "uck", "vice", "ssert", "LE:", "rrier", "ORTED",
)
# fmt: on
"""Each pattern is looked for only where the first of these that it holds is in the line. They are short, so
that few cover all patterns, and rare in the lines of a healthy training. A pattern without any is its own
trigger, which costs a search in each line."""
_EXCEPTION = re.compile(r"([^\W\d][\w.]*)(?::|$)")
_LIKE_AN_EXCEPTION = re.compile(
    r"(?:Error|Exception|Warning|Interrupt|Exit|Empty|Full|Timeout|Failure|Abort|Cancelled|Errors)$"
)


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


class Rows(msgspec.Struct, frozen=True):
    """The catalogue, in order of precedence, by what each pattern is triggered by."""

    rows: tuple[LogErrorRow, ...]
    by_trigger: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    main: int
    thread: int
    """Places of the rows that name a traceback."""

    def place_of(self, code: str) -> int | None:
        return next((place for place, row in enumerate(self.rows) if row.code == code), None)


@lru_cache(maxsize=4)
def compiled(rows: tuple[LogErrorRow, ...]) -> Rows:
    by_trigger: dict[str, list[tuple[int, str]]] = {}
    places: dict[Traceback, int] = {}
    for place, row in enumerate(rows):
        if row.traceback is not None:
            places.setdefault(row.traceback, place)
        for pattern in row.patterns:
            trigger = next((one for one in _TRIGGERS if one in pattern), pattern)
            by_trigger.setdefault(trigger, []).append((place, pattern))
    return Rows(
        rows=rows,
        by_trigger=tuple((trigger, tuple(those)) for trigger, those in by_trigger.items()),
        main=places.get(Traceback.MAIN, len(rows) - 1),
        thread=places.get(Traceback.THREAD, len(rows) - 1),
    )


def row_in(rows: Rows, line: str) -> int | None:
    """The place of the first row that matches the line."""
    best: int | None = None
    for trigger, patterns in rows.by_trigger:
        if trigger in line:
            for place, pattern in patterns:
                if (best is None or place < best) and pattern in line:
                    best = place
    return best


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
