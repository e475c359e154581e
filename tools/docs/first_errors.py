"""The page of the errors that are read in training logs, from the rows of log_errors.toml."""

from __future__ import annotations

from collections.abc import Iterator

from detectors.catalog.log_errors import Implies, LogErrorRow, packaged_log_errors
from tools.docs.structs import one_line

__all__ = ["first_errors_page"]

_HEAD = """\
# First errors of training logs

Generated from `detectors/catalog/log_errors.toml` by `make docs`; each row there names its source, and
`settings.catalogue` of the chart adds rows of your own, which win. `rekindle read-log FILE` tells which line
of a log of yours Rekindle takes for its first error.

When one rank of a gang fails, the others fail after it, each with an error of its own. So Rekindle asks of
each line what it implies for the process that printed it:

| implies | meaning |
|---|---|
| `own-fault` | the process failed by itself, and the line says of what |
| `own-end` | the process seems to have failed by itself, and the line does not say of what |
| `maybe-own` | a line that often means nothing; it is an error only if the log has no other |
| `peer-lost` | another process was gone first |
| `timed-out-waiting` | another process did not come in time: it died, hangs, or was never started |
| `told-to-end` | a launcher, a scheduler or a person asked the process to end |
| `said-elsewhere` | a launcher repeats that a process failed; another line says why |
| `nothing` | the program goes on after the line |

- In one container the first own fault counts, even if a lost peer or a wait in vain was printed before it.
  After a wait in vain an exception that no row names is taken for a consequence.
- The eight lines that a rank prints after an exception may belong to its message, and name the error more
  closely. Of chained exceptions the first one counts, unless a later one says what broke.
- An error counts no more if the training goes on: if it makes a step more than 60 seconds later, or prints
  100 lines without an error after those 60 seconds.
- In a gang, ranks whose first error is `peer-lost`, `timed-out-waiting`, `told-to-end` or `said-elsewhere`
  are consequences (`propagated`). Of the others the one whose error came first is the cause.
- Between ranks an error of a row of your own counts as an own fault: what such a row implies is known to the
  agents, and not to the controller.
- A log is the tenant's own word: an error in it never takes a node out of service.

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
