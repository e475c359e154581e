"""The page of the frameworks whose logs are read, from the rows of steps.toml."""

from __future__ import annotations

from collections.abc import Iterator

from detectors.catalog.steps import BarRow, Complete, StepCatalog, StepRow, packaged_steps
from tools.docs.structs import one_line

__all__ = ["frameworks_page"]

_HEAD = """\
# Frameworks whose logs are read

Generated from `detectors/catalog/steps.toml` by `make docs`. Each row there names its source and has an
example that a test reads. `rekindle read-log FILE` shows which steps and checkpoints Rekindle reads in
your log.

A number counts as a step when it has risen from one line to another. After a single line, Rekindle neither
notices a hang nor counts a recovery as proven.

- Rekindle compares counts *of the run* with the step of the checkpoint, and so knows how many steps were
  lost.
- Counts *within an epoch* begin again with each epoch. From such counts Rekindle notices a hang and sees
  that the job trains again, but it does not know from which step the job resumed. Let the job also print
  the step of the run, and set the annotation `rekindle.dev/step-template` for that line.
- If this page does not list a framework, Rekindle reads lines with words such as `step 12/100`, alone or
  with a figure of the training in the same line. If such a line contains other words, Rekindle takes the
  number for a step only after it has risen three times by the same amount.
- If such a line has `epoch 3` before the step, the step is a count within an epoch. `'epoch': 0.25` does
  not have this effect.
- If this page does not list a progress bar of tqdm, Rekindle reads the bar only if it shows a loss, and as
  a count within an epoch. Rekindle never reads a step from the bar of an evaluation or a preparation, such
  as `Validation` or `Map`.
- For any other log, set the annotation `rekindle.dev/step-template` on the job, for example
  `it {step} of`.
- The second column of the table names the first version of the framework that prints the line, according
  to the history of the framework. The table says *not checked* if the history did not show the version.
"""

_CHECKPOINTS = """\
After such a line, a pod does not count as stalled for `logs.pause_s` (30 minutes), or until its next
step. After that step the usual limits apply again. The last column says from which line on Rekindle knows
that the whole checkpoint is written. Where the column says *unknown*, some jobs write the checkpoint in
the background while the training makes steps, and others do not, and both print the same line."""
_COMPLETE: dict[Complete, str] = {
    "at-once": "with this line",
    "next-step": "with the next step",
    "unknown": "unknown",
}


def frameworks_page() -> str:
    catalog = packaged_steps()
    lines = [
        _HEAD,
        "## Steps",
        "",
        "| framework | since its version | counts | read from |",
        "|---|---|---|---|",
        *_steps(sorted((*catalog.steps, *catalog.bars), key=lambda row: row.framework.lower())),
        *_anonymous(catalog),
        "",
        "## Checkpoints",
        "",
        _CHECKPOINTS,
        "",
        "| framework | read from | the checkpoint is complete |",
        "|---|---|---|",
        *(f"| {row.framework} | {_code(row.example)} | {_COMPLETE[row.complete]} |" for row in catalog.saves),
        "",
        "## Evaluations",
        "",
        "After such a line, a pod does not count as stalled for `logs.pause_s` (30 minutes), or until its",
        "next step. A progress bar of another name that moves, and new figures of the training without a",
        "step, also show that the pod is not stalled.",
        "",
        "| framework | read from |",
        "|---|---|",
        *(f"| {row.framework} | {_code(row.example)} |" for row in catalog.evaluations),
    ]
    return "\n".join(lines) + "\n"


def _steps(rows: list[StepRow | BarRow]) -> Iterator[str]:
    for row in rows:
        counts = "of the run" if row.scope == "run" else "within an epoch"
        yield f"| {row.framework} | {one_line(row.since)} | {counts} | {_code(row.example)} |"


def _anonymous(catalog: StepCatalog) -> Iterator[str]:
    """Bars without a name, which a line before them or between their counts makes the training's."""
    for total in catalog.totals:
        read = f"the bar without a name, after {_code(total.example)} has announced its total"
        yield f"| {total.framework} | {one_line(total.since)} | of the run | {read} |"
    for row in catalog.metrics:
        figures = f"{_code(row.example)} has come twice between two states of the bar"
        read = f"the bar without a name, after {figures}; with disable_tqdm=True Rekindle reads no step"
        yield f"| {row.framework} | any | of the run | {read} |"


def _code(text: str) -> str:
    """A line as code within a table's cell."""
    return f"`` {one_line(text).strip()} ``"
