"""Generates the page of the frameworks whose logs are read, from the rows of steps.toml."""

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

A number counts as a step when it has risen from one line to another. Until then, Rekindle cannot notice a
hang of the job, and no step can prove that a recovery succeeded.

- Rekindle compares counts *of the run* with the step of the checkpoint, and so knows how many steps were
  lost.
- Counts *within an epoch* begin again with each epoch. From such counts Rekindle notices a hang and sees
  that the job trains again, but Rekindle does not know from which step the job resumed. Let the job also
  print the step of the run, and set the annotation `rekindle.dev/step-template` for that line.
- If this page does not list a framework, Rekindle reads lines with `step` or `iteration` and a number, such
  as `step 12/100`, alone or with a value of the training, such as the loss, in the same line. If such a line
  contains other words, Rekindle takes the number for a step only after it has risen three times by the same
  amount.
- If such a line has `epoch 3` before the step, the step is a count within an epoch. `'epoch': 0.25` does
  not have this effect.
- If this page does not list a progress bar of tqdm, Rekindle reads the bar only if it shows a loss. The
  number of such a bar counts as a step within an epoch. Rekindle never reads a step from the bar of an
  evaluation or a preparation, such as `Validation` or `Map`.
- For any other log, set the annotation `rekindle.dev/step-template` on the job, for example
  `it {step} of`.
- The second column of the table names the first version of the framework that prints the line, according
  to the history of the framework. *No later than 1.7* means that version 1.7 prints the line, and earlier
  versions may print it, too. *Not checked* means that the history did not show the version.
- Some frameworks count samples, batches or other units instead of steps. Their names say so.
"""

_CHECKPOINTS = """\
After a line about a checkpoint, a pod counts as stalled only once `logs.pause_s` (30 minutes) has passed
without a step. After the next step the usual limits apply again. If the job has the annotation
`rekindle.dev/hang-timeout`, its time applies instead of all others. The last column says when Rekindle
knows that the whole checkpoint is written: when Rekindle reads this line, or when Rekindle reads the next
step.
*Unknown* means that the log does not show when the checkpoint is written: some jobs write the checkpoint in
the background while the training makes steps, others do not, and both print the same line."""
_NO_BAR = "With `disable_tqdm=True` Rekindle reads no step"
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
        "| framework | first version | counts | read from |",
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
        "After a line about an evaluation, a pod counts as stalled only once `logs.pause_s` (30 minutes) has",
        "passed without a step. Another progress bar that moves, and new values of the training without a",
        "step, begin the time again.",
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
    """Yields bars without a name. A line before them or between their counts shows that they are the
    training's."""
    for total in catalog.totals:
        read = f"the bar without a name, after {_code(total.example)} has announced its total"
        yield f"| {total.framework} | {one_line(total.since)} | of the run | {read} |"
    for row in catalog.metrics:
        twice = "each with a count of the bar before and after it"
        line = _code(row.example)
        read = f"the bar without a name, after two lines such as {line}, {twice}. {_NO_BAR}"
        yield f"| {row.framework} | any | of the run | {read} |"


def _code(text: str) -> str:
    """Returns a line as code within a table's cell."""
    return f"`` {one_line(text).strip()} ``"
