"""The page of the frameworks whose logs are read, from the rows of steps.toml."""

from __future__ import annotations

from collections.abc import Iterator

from detectors.catalog.steps import BarRow, Complete, StepCatalog, StepRow, packaged_steps
from tools.docs.structs import one_line

__all__ = ["frameworks_page"]

_HEAD = """\
# Frameworks whose logs are read

Generated from `detectors/catalog/steps.toml` by `make docs`; each row there names its source and has an
example that a test reads. `rekindle read-log FILE` tells what is read in a log of yours.

A number is a step once it has risen from one line to another. After a single line, Rekindle neither notices
a hang nor counts a recovery as proven.

- Counts *of the run* are compared with the step of the checkpoint, and tell how many steps were lost.
- Counts *within an epoch* begin again with each epoch. Rekindle notices a hang and sees that the job trains
  again, and cannot tell from which step the job resumed. Let the job print the step of the run as well, and
  name it with `rekindle.dev/step-template`.
- A log of a framework that is not listed is read where it says `step 12/100` or the like, with a figure of
  the training in the same line or with nothing else. Other lines with such words are believed after their
  third rise by the same number.
- In such a line `epoch 3` before the step makes it a count within an epoch, and `'epoch': 0.25` does not.
- A progress bar of tqdm that is not listed is read where it shows a loss, as a count within an epoch. One
  that tells of an evaluation or a preparation, such as `Validation` or `Map`, is never a step.
- For any other log, set the annotation `rekindle.dev/step-template` on the job, for example `it {step} of`.
- The version since which a framework prints the line was looked up in the framework's own history. Where that
  was not possible, the table says *not checked*.
"""

_CHECKPOINTS = """\
After such a line a pod is not called stalled for `logs.pause_s`, unless a step follows sooner. The last
column says when Rekindle knows that all of the checkpoint is written. Where it says *unknown*, the framework
may go on writing while the training makes steps; its line is the same in both cases."""
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
        "After such a line a pod is not called stalled for as long. A progress bar of another name that",
        "moves shows life as well, and so do new figures of the training without a step.",
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
        read = f"the bar without a name, once {_code(total.example)} has announced its total"
        yield f"| {total.framework} | {one_line(total.since)} | of the run | {read} |"
    for row in catalog.metrics:
        figures = f"{_code(row.example)} has come twice between two states of the bar"
        read = f"the bar without a name, once {figures}; with disable_tqdm=True nothing is read"
        yield f"| {row.framework} | any | of the run | {read} |"


def _code(text: str) -> str:
    """A line as code within a table's cell."""
    return f"`` {one_line(text).strip()} ``"
