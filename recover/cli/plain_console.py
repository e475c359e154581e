"""The console for what others have written: names of files, log lines, objects of the cluster. For all
commands that draw with rich.

By default rich reads `[red]` and `[link=...]` in any text as markup: a name could then look as it likes, lead
to a web page, or end the command with an error.
"""

from __future__ import annotations

from rich.console import Console

__all__ = ["plain_console", "width_of"]


def plain_console() -> Console:
    """Reads no markup and no names of emoji, and colours no word by itself."""
    return Console(markup=False, highlight=False, emoji=False)


def width_of(console: Console) -> int | None:
    """None without a terminal: there lines are as long as they are."""
    return console.width if console.is_terminal else None
