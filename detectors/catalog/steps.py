"""Defines the rows of steps.toml: how frameworks print their steps and checkpoints in a log.

Our regular expressions read tenant text here. Each expression is searched only in a line that contains its
trigger, in at most 4096 characters. No expression has a repetition within a repetition, so the cost of a line
is only in proportion to its length.
"""

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
"""When the checkpoint in a line is complete."""


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: _Name
    framework: str
    example: str
    """A line as the framework prints it; a test reads it."""
    reads: int | None = None
    """The number that is read from the example."""
    source: str


class _Line(_Row, frozen=True, forbid_unknown_fields=True, kw_only=True):
    trigger: _Trigger
    """Literal in lower case. The pattern is tried only if the line contains the trigger."""
    pattern: str

    def __post_init__(self) -> None:
        re.compile(self.pattern)
        if self.trigger != self.trigger.lower():
            raise ValueError(f"expected a trigger in lower case, not {self.trigger!r}")


class StepRow(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    scope: Scope = "run"
    begins_at: int = 0
    """Least number that is a step. A smaller number is printed at the start of the program and is no step."""
    unfinished: bool = False
    """Whether the line is read only while the count is below its total."""
    of_scripts: bool = False
    """Whether many programs use this wording. The line is no step if its beginning shows an evaluation or
    similar work."""
    since: str


class BarRow(_Row, frozen=True, forbid_unknown_fields=True, kw_only=True):
    called: str
    """The complete name of the bar."""
    endless: bool = False
    """Whether the row is only for bars without a known total."""
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
    """Returns the packaged catalogue. Raises `BadValueError` for a bad row of the package."""
    return StepCatalog(
        steps=tuple(packaged_rows(_FILE, "step", StepRow)),
        bars=tuple(packaged_rows(_FILE, "bar", BarRow)),
        totals=tuple(packaged_rows(_FILE, "total", TotalRow)),
        metrics=tuple(packaged_rows(_FILE, "metrics", MetricsRow)),
        saves=tuple(packaged_rows(_FILE, "save", SaveRow)),
        evaluations=tuple(packaged_rows(_FILE, "evaluation", EvaluationRow)),
    )
