"""The rows of steps.toml: how frameworks tell of their steps and checkpoints in a log.

Regular expressions of ours meet tenant text here. Each is searched only in a line that holds its trigger, in
at most 4096 characters, and has no repetition within a repetition, so a line costs its length."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from detectors.catalog.load import packaged_rows

__all__ = [
    "BarRow",
    "Complete",
    "EvaluationRow",
    "MetricsRow",
    "SaveRow",
    "StepCatalog",
    "StepRow",
    "TotalRow",
    "packaged_steps",
]

_FILE = "steps.toml"
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
_Trigger = Annotated[str, Meta(min_length=1, max_length=40)]
Scope = Literal["run", "epoch"]
Complete = Literal["at-once", "next-step", "unknown"]
"""When a checkpoint of which a line tells is all written."""


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: _Name
    framework: str
    example: str
    """A line as the framework prints it; a test reads it."""
    reads: int | None = None
    """What is read from the example."""
    source: str


class _Line(_Row, frozen=True, forbid_unknown_fields=True, kw_only=True):
    trigger: _Trigger
    """Literal, in lower case: the pattern is tried only where the line holds it."""
    pattern: str

    def __post_init__(self) -> None:
        re.compile(self.pattern)
        if self.trigger != self.trigger.lower():
            raise ValueError(f"expected a trigger in lower case, not {self.trigger!r}")


class StepRow(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    scope: Scope = "run"
    begins_at: int = 0
    """A smaller number is told at the start of the program and is no step."""
    unfinished: bool = False
    """The line is read only while the count is below its total."""
    of_scripts: bool = False
    """A wording of many programs: the line is no step if its beginning tells of an evaluation or the like."""
    since: str


class BarRow(_Row, frozen=True, forbid_unknown_fields=True, kw_only=True):
    called: str
    """The whole name of the bar."""
    endless: bool = False
    """Only a bar whose total nobody knows."""
    scope: Scope = "run"
    since: str


class TotalRow(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    since: str


class MetricsRow(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class SaveRow(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    complete: Complete


class EvaluationRow(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class StepCatalog(msgspec.Struct, frozen=True):
    steps: tuple[StepRow, ...]
    bars: tuple[BarRow, ...]
    totals: tuple[TotalRow, ...]
    metrics: tuple[MetricsRow, ...]
    saves: tuple[SaveRow, ...]
    evaluations: tuple[EvaluationRow, ...]


@lru_cache(maxsize=1)
def packaged_steps() -> StepCatalog:
    """Raises `BadValueError` for a bad row of ours."""
    return StepCatalog(
        steps=tuple(packaged_rows(_FILE, "step", StepRow)),
        bars=tuple(packaged_rows(_FILE, "bar", BarRow)),
        totals=tuple(packaged_rows(_FILE, "total", TotalRow)),
        metrics=tuple(packaged_rows(_FILE, "metrics", MetricsRow)),
        saves=tuple(packaged_rows(_FILE, "save", SaveRow)),
        evaluations=tuple(packaged_rows(_FILE, "evaluation", EvaluationRow)),
    )
