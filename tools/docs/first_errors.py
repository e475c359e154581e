"""Generates the page of the errors that are read in training logs, from the rows of log_errors.toml."""

from __future__ import annotations

from collections.abc import Iterator

from detectors.catalog.log_errors import Implies, LogErrorRow, packaged_log_errors
from tools.docs.structs import one_line

__all__ = ["first_errors_page"]

_HEAD = """\
# First errors of training logs

Generated from `detectors/catalog/log_errors.toml` by `make docs`. Each row there names its source. The value
`settings.catalogue` of the chart adds your rows, and your rows take precedence. `rekindle read-log FILE`
shows which line of a log Rekindle takes for the first error.

When one rank of a gang fails, the other ranks fail, too, and each prints its own error. So for each line of
an error Rekindle decides what the line implies about the process that printed it:

| implies | meaning |
|---|---|
| `own-fault` | the process failed by itself, and the line names the cause |
| `own-end` | the process seems to have failed by itself, and the line does not name the cause |
| `maybe-own` | the line often means nothing: it counts as an error only if the log has no other error |
| `peer-lost` | another process ended first |
| `timed-out-waiting` | another process did not answer in time: it died, hangs, or was never started |
| `told-to-end` | a launcher, a scheduler or a person asked the process to end |
| `said-elsewhere` | a launcher repeats that a process failed, and another line says why |
| `nothing` | the program goes on after the line |

- In the log of one container Rekindle uses the first `own-fault`, even if the log has a line of `peer-lost`
  or `timed-out-waiting` before it. After a line of `timed-out-waiting`, Rekindle treats an exception without
  a row as a consequence.
- The eight lines after an exception may belong to its message. If one of these lines has a more exact row,
  Rekindle uses this row. If exceptions are chained, Rekindle uses the first exception, unless a later
  exception names what broke.
- Rekindle drops an error if the training continues: if the training makes a step more than 60 seconds after
  the error, or prints 100 lines without an error after these 60 seconds.
- If the earliest error of a rank is `peer-lost`, `timed-out-waiting`, `told-to-end` or `said-elsewhere`, the
  error is a consequence of the failure of another rank (`propagated`). Among all other ranks of the gang,
  the rank with the earliest error is the cause.
- Only the agents read your rows; the controller does not. If your row has a new code, the controller treats
  its error as `own-fault`, whatever your row implies. If your row has the code of a packaged row, the
  controller uses what the packaged row implies.
- A tenant can print any text into a log, so an error in a log never takes a node out of service.

"""


def first_errors_page() -> str:
    lines = [
        _HEAD + "## Errors",
        "",
        "| code | implies | meaning | for example |",
        "|---|---|---|---|",
        *_rows(),
    ]
    return "\n".join(lines) + "\n"


def _rows() -> Iterator[str]:
    for row in packaged_log_errors():
        if row.implies is not Implies.NOTHING:
            yield f"| `{row.code}` | `{row.implies}` | {one_line(row.meaning)} | {_example(row)} |"


def _example(row: LogErrorRow) -> str:
    if not row.patterns:
        return "the last line of a traceback"
    return f"`{row.patterns[0].strip().replace('|', chr(92) + '|')}`"
