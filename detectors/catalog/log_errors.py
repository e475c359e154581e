"""Defines the rows of log_errors.toml: literal text of training logs that names an error."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.tables import Table

__all__ = ["LOG_ERRORS", "Failed", "Implies", "LogErrorRow", "Traceback", "packaged_log_errors"]


class Implies(StrEnum):
    """Implication of a line for the process that printed it; log_errors.toml explains each value."""

    NOTHING = "nothing"
    OWN_FAULT = "own-fault"
    OWN_END = "own-end"
    MAYBE_OWN = "maybe-own"
    PEER_LOST = "peer-lost"
    TIMED_OUT = "timed-out-waiting"
    TOLD_TO_END = "told-to-end"
    SAID_ELSEWHERE = "said-elsewhere"

    @property
    def propagated(self) -> bool:
        """Whether the cause is elsewhere."""
        return self in _PROPAGATED


_PROPAGATED = frozenset({Implies.PEER_LOST, Implies.TIMED_OUT, Implies.TOLD_TO_END, Implies.SAID_ELSEWHERE})


class Failed(StrEnum):
    """The part that failed, if a line implies that the process itself failed."""

    PROGRAM = "program"
    RESOURCES = "resources"
    """The job has used up its memory, a disk, or a quota."""
    STORAGE = "storage"
    DEVICE = "device"
    """An accelerator or a network adapter."""


class Traceback(StrEnum):
    """The thread in which an exception was raised. The row matches the exception whatever its name."""

    MAIN = "main"
    THREAD = "thread"


class LogErrorRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: Annotated[str, Meta(pattern=r"^log-[a-z0-9-]+$", max_length=63)]
    patterns: tuple[Annotated[str, Meta(min_length=4, max_length=200)], ...]
    """Literal and case-sensitive patterns; any one matches."""
    meaning: str
    implies: Implies
    failed: Failed = Failed.PROGRAM
    traceback: Traceback | None = None
    """The traceback whose end the row matches; None for rows that match only by pattern."""
    source: str

    @property
    def propagated(self) -> bool:
        return self.implies.propagated


LOG_ERRORS = Table("log_error", LogErrorRow, "log_errors.toml")


def packaged_log_errors(extra: Iterable[LogErrorRow] = ()) -> tuple[LogErrorRow, ...]:
    """Returns all rows in order of precedence: the first row that matches a line counts, and the rows of the
    user (`extra`) come first. Raises `BadValueError` for a bad row of the package."""
    return (*extra, *LOG_ERRORS.packaged())
