"""Rows of a bench: each figure, how often it was measured, its percentiles beside its goal, and the
machine."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.scenarios.stage import StageError
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError
from recover.cli.output import Form, print_data

__all__ = ["Goal", "Machine", "Row", "answered", "machine", "percentile", "row", "shown", "table"]

PIPED_CHARS = 500
"""Width of a line on a pipe. The width is large so that nothing is cut off."""
T = TypeVar("T", bound=msgspec.Struct)


def shown(found: T, tell: Callable[[Console, T], None], output: str) -> None:
    """Prints the result of a bench: as data for programs, or in the bench's own words. If the output is no
    terminal, lines are not wrapped."""
    if output == Form.TABLE:
        console = Console()
        tell(console if console.is_terminal else Console(width=PIPED_CHARS), found)
    else:
        print_data(found, output, kind="Bench")


def answered(name: str, measure: Callable[[], T], tell: Callable[[Console, T], None], output: str) -> int:
    """Prints the result of a bench on an API server, or why there is no result. Returns the exit status."""
    try:
        found = measure()
    except (StageError, SettingsError, ApiError, ReplyLost) as error:
        print(f"rekindle {name}: {error}", file=sys.stderr)
        return Exit.UNUSABLE if isinstance(error, SettingsError) else Exit.BAD
    shown(found, tell, output)
    return 0


class Goal(msgspec.Struct, frozen=True):
    """Limits in milliseconds. None if there is no goal."""

    p50_ms: float | None = None
    p99_ms: float | None = None


class Row(msgspec.Struct, frozen=True):
    name: str
    words: str
    rounds: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    goal: Goal = Goal()


class Machine(msgspec.Struct, frozen=True):
    cores: int
    load_before: float
    """One-minute load average before the rounds. If it is above `cores`, other programs also use the
    machine."""
    load_after: float
    kernel: str
    python: str

    def words(self) -> str:
        return (
            f"Machine: {self.cores} cores, load {self.load_before:.1f} before and {self.load_after:.1f} "
            f"after, Linux {self.kernel}, Python {self.python}"
        )


def machine(load_before: float) -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        kernel=platform.release(),
        python=platform.python_version(),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the percentile by the nearest rank. The result is always a value that was measured, so with few
    rounds the 99th percentile is the largest value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def row(name: str, words: str, seconds: Sequence[float], goal: Goal = Goal()) -> Row:  # noqa: B008  (it is frozen)
    return Row(
        name=name,
        words=words,
        rounds=len(seconds),
        p50_ms=_ms(percentile(seconds, 50)),
        p99_ms=_ms(percentile(seconds, 99)),
        max_ms=_ms(max(seconds)),
        goal=goal,
    )


def _ms(value_s: float) -> float:
    return round(1000 * value_s, 1)


def table(title: str, rows: Sequence[Row]) -> Table:
    """Returns the table of the rows. A missed goal is shown beside its figure."""
    made = Table(title=title, title_justify="left")
    made.add_column("milliseconds", no_wrap=True)
    for column in ("n", "p50", "p99"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("goals", no_wrap=True)
    for r in rows:
        made.add_row(
            r.words,
            str(r.rounds),
            _judged(r.p50_ms, r.goal.p50_ms),
            _judged(r.p99_ms, r.goal.p99_ms),
            _goals(r.goal),
        )
    return made


def _judged(value: float, goal: float | None) -> str:
    if goal is None:
        return f"{value:g}"
    return f"[green]{value:g}[/]" if value <= goal else f"[red]{value:g}, missed[/]"


def _goals(goal: Goal) -> str:
    limits = [f"<= {limit:g}" for limit in (goal.p50_ms, goal.p99_ms) if limit is not None]
    return ", ".join(limits)
