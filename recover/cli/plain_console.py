"""The console for text that others wrote: names of files, log lines, objects of the cluster. All commands
that draw with rich use this console.

By default rich reads `[red]` and `[link=...]` in any text as markup: a name could then change its own
appearance, link to a web page, or end the command with an error.
"""

from __future__ import annotations

from rich.console import Console

__all__ = ["plain_console", "width_of"]


def plain_console() -> Console:
    """Returns a console that reads no markup and no names of emoji, and does not colour words by itself."""
    return Console(markup=False, highlight=False, emoji=False)


def width_of(console: Console) -> int | None:
    """Returns the width of the terminal; None without a terminal, because lines may then have any length."""
    return console.width if console.is_terminal else None
