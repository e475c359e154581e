"""Prints stories and tables for people: coloured and wrapped on a terminal, plain and with full lines on a
pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from detectors.text.printing import one_line, printable
from recover.cli.layout import filled, table_lines
from recover.cli.plain_console import plain_console, width_of
from recover.stories.overview_tables import Table
from recover.stories.words import Command, Line, Story, Tone

__all__ = ["STYLES", "print_commands", "print_line", "print_story", "print_table"]

STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.WAITING: "yellow",
    Tone.DETAIL: "dim",
}


def print_story(story: Story) -> None:
    console = plain_console()
    print_line(console, story.subject, style="bold")
    print_line(console, story.verdict.text, style=STYLES[story.verdict.tone])
    for section in story.sections:
        console.print()
        print_line(console, section.title, style="bold")
        for line in section.lines:
            _print_item(console, line)
    print_commands(console, story.commands)


def _print_item(console: Console, line: Line) -> None:
    first, others = ("      ", "      ") if line.tone is Tone.DETAIL else ("  - ", "    ")
    print_line(console, line.text, first, others, style=STYLES[line.tone])


def print_line(console: Console, text: str, first: str = "", others: str = "", *, style: str = "") -> None:
    """Prints the text. A line break in the text stays a line break."""
    for part in printable(text).split("\n"):
        for line in filled(part, width_of(console), first, others):
            console.print(Text(line, style=style), soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    if table.title:
        console.print(Text(table.title, style="bold"))
    rows: Sequence[Sequence[str]] = [tuple(map(one_line, row)) for row in table.rows]
    for number, line in enumerate(table_lines(table.columns, rows, width_of(console))):
        console.print(Text(line, style="dim" if number == 0 else ""), soft_wrap=True)


def print_commands(console: Console, commands: Iterable[Command]) -> None:
    """Prints the commands. A command is never wrapped, so that a person can copy it; its purpose is printed
    below the command if there is no space beside it."""
    every = tuple(commands)
    if not every:
        return
    console.print()
    console.print(Text("Useful next", style="bold"))
    longest = max(len(command.run) for command in every)
    width = width_of(console)
    for command in every:
        beside = width is None or 5 + longest + len(command.why) <= width
        text = Text(f"  {command.run:<{longest if beside else 0}}", style="cyan")
        if beside:
            text += Text(f"   {command.why}", style="dim")
        console.print(text, soft_wrap=True)
        if not beside:
            print_line(console, command.why, "      ", "      ", style="dim")
