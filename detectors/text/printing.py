"""Cleans text of tenants and drivers before it is printed, or kept in an object that kubectl prints. Pure."""

from __future__ import annotations

import unicodedata

__all__ = ["MARKS_MAX", "one_line", "printable"]

_BLANK = dict.fromkeys(map(ord, "\u115f\u1160\u2800\u3164\uffa0\U0001d159"), " ")
"""Letters and signs that are drawn as nothing. Enough of them would fill a row of the terminal, and the text
after them would look like a line of Rekindle."""
MARKS_MAX = 4
"""Limit of combining marks on one letter. Languages need up to four; hundreds are drawn over other text."""


def printable(text: str) -> str:
    """Replaces control codes. Log text may contain control codes that would control the reader's terminal."""
    shown = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}"
        for c in text.replace("\t", "    ").translate(_BLANK)
    )
    return shown if shown.isascii() else _with_few_marks(shown)


def one_line(text: str) -> str:
    return printable(" ".join(text.translate(_BLANK).split()))


def _with_few_marks(text: str) -> str:
    kept, marks = [], 0
    for c in text:
        marks = marks + 1 if unicodedata.category(c) in ("Mn", "Me") else 0
        if marks <= MARKS_MAX:
            kept.append(c)
    return "".join(kept)
