"""Prints a verdict on a terminal: the timeline, the time of each phase, the losses, and each check."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.scenarios.play import Verdict
from chaos.scenarios.watching import Told
from recover.api import Recovery

__all__ = ["plain", "print_line", "print_verdict"]

_STYLES = {"FAULT": "bold red", "controller": "cyan", "job": "bold", "stage": "dim", "training": "green"}
_ROOM_MIN = 20
"""Minimum number of columns for the words. With fewer columns wrapping does not help."""


def print_line(console: Console, told: Told) -> None:
    """Prints a line. On a terminal long words continue below themselves; in a pipe one line stays one
    line."""
    at, who = f"{told.at_s:7.2f} s  ", f"{told.who:<11}"
    room = console.width - len(at) - len(who)
    lines = [told.words]
    if console.is_terminal and room >= _ROOM_MIN:
        lines = textwrap.wrap(told.words, room, break_long_words=False, break_on_hyphens=False)
    line = Text(at, style="dim")
    line.append(who, style=_STYLES.get(told.who, "yellow"))
    line.append(f"\n{' ' * len(at + who)}".join(lines))
    console.print(line, soft_wrap=True, highlight=False)


def print_verdict(console: Console, verdict: Verdict) -> None:
    if verdict.recoveries:
        console.print(_phases(verdict))
    for check in verdict.checks:
        mark = Text("  ok  ", style="green") if check.ok else Text(" FAIL ", style="bold red")
        console.print(mark.append(check.words, style=""), soft_wrap=True, highlight=False)
    passed = sum(check.ok for check in verdict.checks)
    style = "bold green" if verdict.ok else "bold red"
    console.print(
        f"{verdict.scenario} {'passed' if verdict.ok else 'FAILED'}: {passed} of {len(verdict.checks)} "
        f"checks, {verdict.seconds:g} s",
        style=style,
        highlight=False,
    )


def _phases(verdict: Verdict) -> Table:
    table = Table(title="Where the time went, in seconds", title_justify="left", title_style="bold")
    table.add_column("phase")
    for recovery in verdict.recoveries:
        table.add_column(f"recovery {recovery.spec.number}: {recovery.spec.fault}", justify="right")
    names = dict.fromkeys(span.phase for spans in verdict.phases for span in spans)
    for name in names:
        sums = [sum(s.seconds for s in spans if s.phase == name) for spans in verdict.phases]
        table.add_row(str(name), *(f"{seconds:.3f}" for seconds in sums))
    totals = [sum(span.seconds for span in spans) for spans in verdict.phases]
    table.add_row("fault to first new step", *(f"{seconds:.3f}" for seconds in totals), style="bold")
    table.add_section()
    for words, cells in _costs(verdict.recoveries).items():
        table.add_row(words, *cells)
    return table


def _costs(recoveries: tuple[Recovery, ...]) -> dict[str, list[str]]:
    def shown(value: Any) -> str:
        return "unknown" if value is None else str(value)

    states = [recovery.status for recovery in recoveries]
    return {
        "last step before the stop": [shown(s.last_step) for s in states],
        "checkpoint chosen": [shown(s.checkpoint.step if s.checkpoint else None) for s in states],
        "checkpoints not used": [shown(len(s.checkpoint.rejected) if s.checkpoint else 0) for s in states],
        "first new step": [shown(s.resumed_step) for s in states],
        "steps made twice": [shown(s.lost_steps) for s in states],
        "GPU-seconds lost in all": [shown(s.lost_gpu_s) for s in states],
    }


def plain(verdict: Verdict) -> dict[str, Any]:
    """Returns the verdict as data for programs."""
    return {"passed": verdict.ok, **msgspec.to_builtins(verdict)}
