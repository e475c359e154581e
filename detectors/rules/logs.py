"""The first error of a container's log. Pure.

Whatever it finds is the tenant's own word, and never takes a node out.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from detectors.catalog.log_errors import LogErrorRow
from detectors.contract import EVIDENCE_BYTES_MAX, LogError
from detectors.facts import cut

__all__ = ["Errors", "observe", "survived"]

_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[^\W\d][\w.]*(?::|$)")
"""How the line begins that ends a traceback: `torch.OutOfMemoryError: ...`, `KeyboardInterrupt`."""
_LINE_CHARS_MAX = 4096
_RANKS_MAX = 2
_SURVIVED = timedelta(seconds=60)
"""Within that, the other ranks of a container may print what they had done before one of them failed."""


class Errors(msgspec.Struct, frozen=True):
    """`error` is the one to publish; a propagated one gives way to the first that is not."""

    error: LogError | None = None
    propagated: bool = False
    in_traceback: bool = False


def observe(errors: Errors, line: str, at: datetime, rows: tuple[LogErrorRow, ...]) -> Errors:
    """Reads one line. `rows` in order of precedence."""
    if errors.error is not None and not errors.propagated:
        return errors
    line = line[:_LINE_CHARS_MAX]
    if _TRACEBACK in line:
        return msgspec.structs.replace(errors, in_traceback=True)
    # Standard output may come in between: a step line ends no traceback.
    ends_traceback = errors.in_traceback and _EXCEPTION.match(_without_rank(line)) is not None
    row = _row_of(line, rows, ends_traceback=ends_traceback)
    in_traceback = errors.in_traceback and not ends_traceback
    if row is None or (errors.error is not None and row.propagated):
        return errors if in_traceback == errors.in_traceback else Errors(errors.error, errors.propagated)
    found = LogError(code=row.code, at=at, text=cut(line, EVIDENCE_BYTES_MAX))
    return Errors(error=found, propagated=row.propagated, in_traceback=in_traceback)


def survived(errors: Errors, at: datetime) -> Errors:
    """A new step was made. An error that lies so far back has ended nothing: a program may print a traceback
    and go on."""
    is_over = errors.error is not None and at - errors.error.at > _SURVIVED
    return Errors() if is_over else errors


def _row_of(line: str, rows: tuple[LogErrorRow, ...], *, ends_traceback: bool) -> LogErrorRow | None:
    for row in rows:
        if row.traceback and ends_traceback:
            return row
        for pattern in row.patterns:  # any() would cost more than the search, for each line of each pod
            if pattern in line:
                return row
    return None


def _without_rank(line: str) -> str:
    """What launchers put before each line: `[rank3]: ` of torch, `[default3]:` of torchrun --tee,
    `[1,3]<stderr>:` of mpirun --tag-output, `(TaskRunner pid=1234, ip=10.0.0.1) ` of Ray."""
    for _ in range(_RANKS_MAX):
        if line.startswith("["):
            rank, closed, rest = line.partition(":")
            is_rank = bool(closed) and "]" in rank and " " not in rank and any(map(str.isdigit, rank))
        else:
            rank, closed, rest = line.partition(") ")
            is_rank = bool(closed) and rank.startswith("(") and "pid=" in rank
        if not is_rank:
            return line
        line = rest.removeprefix(" ")
    return line
