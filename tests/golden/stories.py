"""Renders stories and tables as lines of text, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tests.golden import rooms

__all__ = ["lines_of", "lines_of_overview"]


def lines_of(story: rooms.Story) -> Iterator[str]:
    yield f"{story.subject}: [{story.verdict.tone.value}] {story.verdict.text}"
    for section in story.sections:
        yield f"  # {section.title}"
        yield from (f"    [{line.tone.value}] {line.text}" for line in section.lines)
    yield from (f"  $ {command.run}  # {command.why}" for command in story.commands)


def lines_of_overview(shown: rooms.Overview) -> Iterator[str]:
    yield from (f"status: [{line.tone.value}] {line.text}" for line in shown.head)
    yield f"status: [{shown.verdict.tone.value}] {shown.verdict.text}"
    for table in shown.tables:
        yield f"  # {table.title}: {' | '.join(table.columns)}"
        yield from (f"    {' | '.join(row)}" for row in table.rows)
    yield from (f"  $ {command.run}  # {command.why}" for command in shown.commands)
