"""Finds the first error of a container's log. Pure.

Each line that matches a row of log_errors.toml implies something about the process that printed it: its own
fault, a peer that was lost first, a wait in vain, an end that somebody requested. An own fault is the
container's first error, even if others printed earlier that they lost a peer; the rest are consequences of
that fault. recover/diagnose/first_loss.py compares the errors of the containers of a gang.

All that this module finds is text of the tenant, and never takes a node out of service.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec

from detectors.catalog.log_errors import Implies
from detectors.rules.error_lines import Mark, Rows, compiled, in_one_line, is_exception, mark_in, row_in
from detectors.rules.launchers import without_prefix
from detectors.wire.fitting import fitted
from detectors.wire.training import LogError

__all__ = ["Errors", "Rows", "compiled", "observe", "restored", "survived"]

_LINE_CHARS_MAX = 4096
_SURVIVED = timedelta(seconds=60)
"""Time within which the other processes of a container may still print what they had done before one of them
failed."""
_GOES_ON_LINES = 100
"""Number of lines without an error, after `_SURVIVED`, that prove that a program has survived its last error.
If steps are not read, nothing else proves that."""
_MESSAGE_LINES = 8
"""Number of lines over which the message of an exception may continue: NCCL's last error is in its third
line."""
_OPEN_MAX = 16
_OTHER_LINE = re.compile(r"\[|[A-Z]\d{4} |[A-Z]+:|[\w.-]+:\d+:\d+ \[|slurm|srun")
"""Beginnings of lines that are no part of an exception's message: a line of a logger or of NCCL, which
another rank may have printed, or of Slurm."""
_TOGETHER = timedelta(seconds=10)
"""Time by which the first rank that fails may print its error after its peers: it may close its connections
first."""
_WEIGHT = {
    Implies.MAYBE_OWN: 0,
    Implies.SAID_ELSEWHERE: 1,
    Implies.PEER_LOST: 2,
    Implies.TIMED_OUT: 2,
    Implies.TOLD_TO_END: 2,
    Implies.OWN_END: 3,
    Implies.OWN_FAULT: 4,
}
"""How much a line says about why the process ended. If two lines have the same weight, the first one
counts."""


class _In(Enum):
    """Where a traceback was raised."""

    MAIN = auto()
    THREAD = auto()
    IGNORED = auto()


class Errors(msgspec.Struct, frozen=True):
    """The state over all lines. `error` is the error to publish; a line that says more about why the process
    ended replaces it."""

    error: LogError | None = None
    row_index: int = -1
    """Index of the error's row, in order of precedence."""
    implies: Implies = Implies.NOTHING
    of_thread: bool = False
    """Whether the error is an exception that ended a thread, for example the thread of a logger."""
    open: tuple[tuple[str, _In], ...] = ()
    """The tracebacks whose exception has not come yet, with the prefix of their rank: many ranks may print
    theirs at once."""
    announced: _In = _In.MAIN
    """Kind of the next traceback."""
    chained: bool = False
    """Whether the next exception was raised because of this error, or while it was handled."""
    prefix: str = ""
    """Prefix of the rank that printed the error."""
    open_lines: int = 0
    """Number of further lines of that rank that may belong to the error's message."""
    heard_at: datetime | None = None
    """Time of the last line about any error."""
    quiet_lines: int = 0
    """Number of lines without an error since `_SURVIVED` has passed after `heard_at`."""

    @property
    def propagated(self) -> bool:
        return self.implies.propagated


def observe(errors: Errors, line: str, at: datetime, rows: Rows) -> Errors:
    """Reads one line, and returns the new state."""
    if traceback := in_one_line(line):
        prefix = without_prefix(line)[0]
        for each in traceback:
            errors = _observed(errors, f"{prefix} {each}" if prefix else each, at, rows)
        return errors
    return _observed(errors, line, at, rows)


def _observed(errors: Errors, line: str, at: datetime, rows: Rows) -> Errors:
    line = line[:_LINE_CHARS_MAX]
    mark = mark_in(line)
    if mark is not None:
        return _marked(errors, mark, line, at)
    if errors.announced is not _In.MAIN and line.strip():
        errors = msgspec.structs.replace(errors, announced=_In.MAIN)
    if errors.open and _is_source(without_prefix(line)[1]):
        return errors
    row_index = row_in(rows, line)
    if row_index is None and not errors.open and _is_settled(errors, at):
        return errors
    prefix, text = without_prefix(line)
    ends, inside = False, _In.MAIN
    if errors.open:
        ended = _ended(errors, prefix) if is_exception(text) else None
        if ended is not None:
            ends, inside = True, errors.open[ended][1]
            left = errors.open[:ended] + errors.open[ended + 1 :]
            errors = msgspec.structs.replace(errors, open=left)
            if inside is _In.IGNORED:
                return errors
            if row_index is None:
                row_index = rows.thread if inside is _In.THREAD else rows.main
    if row_index is None:
        return _quiet(errors, prefix, text, at)
    row = rows.rows[row_index]
    if row.implies is Implies.NOTHING:
        return errors
    if not _tells_more(errors, row_index, prefix, text, at, rows, inside):
        return msgspec.structs.replace(
            errors, heard_at=at, quiet_lines=0, chained=errors.chained and not ends
        )
    return Errors(
        error=fitted(LogError, code=row.code, at=at, text=line),
        row_index=row_index,
        implies=row.implies,
        of_thread=inside is _In.THREAD,
        open=errors.open,
        prefix=prefix,
        open_lines=_MESSAGE_LINES,
        heard_at=at,
    )


def _is_source(text: str) -> bool:
    """Whether a line within a traceback is the program's own source, which may contain any words."""
    return not text or text[0] in " \t│╭╰"


def _is_settled(errors: Errors, at: datetime) -> bool:
    """Whether a line without an error changes nothing, no matter which rank has printed it."""
    if errors.error is None:
        return True
    is_recent = errors.heard_at is None or at - errors.heard_at <= _SURVIVED
    return is_recent and not errors.open_lines


def survived(errors: Errors, at: datetime) -> Errors:
    """Returns the state after a new step. An error that lies far enough back has ended nothing: a program may
    print a traceback and continue."""
    since = errors.error.at if errors.error is not None else errors.heard_at
    return Errors() if since is not None and at - since > _SURVIVED else errors


def restored(error: LogError | None, rows: Rows) -> Errors:
    """Returns the state from the error that an earlier run of the agent published."""
    if error is None:
        return Errors()
    row_index = rows.row_index_of(error.code)
    implies = rows.rows[row_index].implies if row_index is not None else Implies.OWN_FAULT
    row_index = row_index if row_index is not None else -1
    return Errors(error=error, row_index=row_index, implies=implies, heard_at=error.at)


def _tells_more(
    errors: Errors, row_index: int, prefix: str, text: str, at: datetime, rows: Rows, inside: _In
) -> bool:
    """Whether a line says more about why the process ended than the known error."""
    row = rows.rows[row_index]
    if errors.error is None:
        return True
    of_one_rank = prefix == errors.prefix
    goes_on = of_one_rank and (errors.open_lines > 0 or errors.chained)
    old, new = errors.implies, row.implies
    if errors.of_thread and old.propagated and inside is _In.MAIN:
        # The thread may have lost, or waited for, another server than a rank.
        return new is not Implies.MAYBE_OWN
    if old is Implies.OWN_END:
        if new in (Implies.PEER_LOST, Implies.TIMED_OUT):
            is_message = of_one_rank and errors.open_lines > 0 and _OTHER_LINE.match(text) is None
            return is_message and row_index < errors.row_index
        return new is Implies.OWN_FAULT and goes_on
    if old is Implies.OWN_FAULT:
        return new is Implies.OWN_FAULT and goes_on and row_index < errors.row_index
    if new is Implies.OWN_END and _WEIGHT[old] == _WEIGHT[Implies.PEER_LOST]:
        # After a wait in vain, an own end is only a consequence of the wait. A lost peer may be another rank
        # of this container.
        is_another = bool(prefix) and bool(errors.prefix) and not of_one_rank
        return old is Implies.PEER_LOST and is_another and at - errors.error.at <= _TOGETHER
    return _WEIGHT[new] > _WEIGHT[old]


def _marked(errors: Errors, mark: Mark, line: str, at: datetime) -> Errors:
    if mark is Mark.CHAINED:
        if errors.error is None:
            return errors
        is_same = without_prefix(line)[0] == errors.prefix
        next_in = _In.THREAD if is_same and errors.of_thread else errors.announced
        return msgspec.structs.replace(errors, chained=is_same, announced=next_in)
    if mark is not Mark.TRACEBACK:
        follows = _In.THREAD if mark is Mark.IN_THREAD else _In.IGNORED
        return msgspec.structs.replace(errors, announced=follows)
    prefix = without_prefix(line)[0]
    begun = (*errors.open, (prefix, errors.announced))[-_OPEN_MAX:]
    open_lines = 0 if prefix == errors.prefix else errors.open_lines
    return msgspec.structs.replace(
        errors, open=begun, announced=_In.MAIN, open_lines=open_lines, heard_at=at, quiet_lines=0
    )


def _ended(errors: Errors, prefix: str) -> int | None:
    """Returns the index of the open traceback that an exception of this rank ends; None if there is none. A
    bar that was drawn before a traceback may hide its prefix."""
    for of in (prefix, ""):
        for index in reversed(range(len(errors.open))):
            if errors.open[index][0] == of:
                return index
    return None


def _quiet(errors: Errors, prefix: str, text: str, at: datetime) -> Errors:
    """Takes a line without an error: the line may continue the message of an error, or show that the program
    continues."""
    if errors.error is None:
        return errors
    if errors.heard_at is not None and at - errors.heard_at > _SURVIVED:
        if text[:1].isspace() or text.startswith("frame #"):
            return errors
        is_over = errors.quiet_lines + 1 >= _GOES_ON_LINES
        return (
            Errors(open=errors.open)
            if is_over
            else msgspec.structs.replace(errors, quiet_lines=errors.quiet_lines + 1, open_lines=0)
        )
    if errors.open_lines and prefix == errors.prefix:
        return msgspec.structs.replace(errors, open_lines=errors.open_lines - 1)
    return errors
