"""The console for what others have written: names of files, log lines, objects of the cluster. For all
commands that draw with rich.

By default rich reads `[red]` and `[link=...]` in any text as markup: a name could then look as it likes, lead
to a web page, or end the command with an error.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from detectors.text.printing import one_line

__all__ = ["cell", "plain_console"]

_PIPED_COLUMNS = 160
"""Without a terminal there is no width to ask for; tables stay readable in a file of this width."""


def plain_console() -> Console:
    """Reads no markup and no names of emoji, and colours no word by itself."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(markup=False, highlight=False, emoji=False, width=_PIPED_COLUMNS)


def cell(text: str) -> Text:
    """For a table: one line, and nothing in it that steers a terminal."""
    return Text(one_line(text))
