"""Lays out the words of a table or a story: in full lines on a pipe, and wrapped between words on a terminal.
Pure.

Rich breaks a long name in the middle, and also wraps lines that go into a pipe. This module never breaks a
word, so a person can copy a name from every form.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

__all__ = ["filled", "table_lines"]

_GAP = 2


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Returns the header line, then the lines of all rows. If `width` is None, lines may have any length.

    If the words of a table do not fit beside each other, each row is printed with one line for each field
    instead.
    """
    if not rows:
        return ["  ".join(columns)]
    cells = list(zip(columns, *rows, strict=True))
    natural = [max(map(cell_len, column)) for column in cells]
    gaps = _GAP * (len(columns) - 1)
    widths = natural
    if width is not None and sum(natural) + gaps > width:
        least = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in cells]
        if sum(least) + gaps > width:
            return _by_field(columns, rows, width)
        widths = _shared(least, natural, width - gaps)
    return [line for row in (columns, *rows) for line in _row(row, widths)]


def _shared(least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Returns the column widths. Columns that need little more than their longest word get their full width;
    the other columns share the rest."""
    widths, spare = list(least), width - sum(least)
    order = sorted(range(len(least)), key=lambda at: natural[at] - least[at])
    for place, at in enumerate(order):
        more = min(natural[at] - least[at], spare // (len(order) - place))
        widths[at] += more
        spare -= more
    return widths


def _row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    wrapped = [_wrapped(text, width) for text, width in zip(cells, widths, strict=True)]
    height = max(map(len, wrapped))
    lines = []
    for number in range(height):
        parts = [lines[number] if number < len(lines) else "" for lines in wrapped]
        padded = (part + " " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True))
        lines.append((" " * _GAP).join(padded).rstrip())
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


def _by_field(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Returns the lines of rows that are too long for one line: one line for each field, such as
    `NODE: gpu-17`."""
    longest = max(map(len, columns)) + 2
    lines: list[str] = []
    for row in rows:
        for name, text in zip(columns, row, strict=True):
            if text:
                lines += filled(text, width, f"{name + ':':<{longest}}", " " * longest)
        lines.append("")
    return lines[:-1]


def filled(text: str, width: int | None, first: str = "", others: str = "") -> list[str]:
    """Returns the lines of one paragraph. `first` is put before the first line, and `others` before all other
    lines."""
    if width is None or cell_len(first + text) <= width:
        return [first + text]
    return textwrap.wrap(
        text,
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
