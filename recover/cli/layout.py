"""Where the words of a table or a story stand: whole on a pipe, wrapped between words on a terminal. Pure.

Rich breaks a long name in the middle, and gives a pipe a width. Here no word is ever broken: a name can be
copied from every form.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

__all__ = ["filled", "table_lines"]

_GAP = 2


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The header line, then the lines of all rows. `width` is None where lines may be as long as they are.

    A table whose words do not fit beside each other is told row by row instead, a line for each field.
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
    """Columns that need little more than their longest word get it; the others share what is left."""
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
    """As a person would tell a row that is too long for a line: `NODE: gpu-17`, and so on."""
    longest = max(map(len, columns)) + 2
    lines: list[str] = []
    for row in rows:
        for name, text in zip(columns, row, strict=True):
            if text:
                lines += filled(text, width, f"{name + ':':<{longest}}", " " * longest)
        lines.append("")
    return lines[:-1]


def filled(text: str, width: int | None, first: str = "", others: str = "") -> list[str]:
    """One paragraph, with what stands before its first line and before all others."""
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
