"""The rows of log_errors.toml: literal text of training logs that names an error."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.tables import Table

__all__ = ["LOG_ERRORS", "Failed", "Implies", "LogErrorRow", "Traceback", "packaged_log_errors"]


class Implies(StrEnum):
    """What a line says of the process that printed it; log_errors.toml explains each."""

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
        """The cause is elsewhere."""
        return self in _PROPAGATED


_PROPAGATED = frozenset({Implies.PEER_LOST, Implies.TIMED_OUT, Implies.TOLD_TO_END, Implies.SAID_ELSEWHERE})


class Failed(StrEnum):
    """What failed where a line tells of an own fault."""

    PROGRAM = "program"
    RESOURCES = "resources"
    """What the job may use is used up: memory, a disk, a quota."""
    STORAGE = "storage"
    DEVICE = "device"
    """An accelerator or an adapter of the network."""


class Traceback(StrEnum):
    """Where the Python exception was raised that a row names whatever it is called."""

    MAIN = "main"
    THREAD = "thread"


class LogErrorRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: Annotated[str, Meta(pattern=r"^log-[a-z0-9-]+$", max_length=63)]
    patterns: tuple[Annotated[str, Meta(min_length=4, max_length=200)], ...]
    """Literal and case-sensitive; any one matches."""
    meaning: str
    implies: Implies
    failed: Failed = Failed.PROGRAM
    traceback: Traceback | None = None
    """For the rows that name the end of a Python traceback."""
    source: str

    @property
    def propagated(self) -> bool:
        return self.implies.propagated


LOG_ERRORS = Table("log_error", LogErrorRow, "log_errors.toml")


def packaged_log_errors(extra: Iterable[LogErrorRow] = ()) -> tuple[LogErrorRow, ...]:
    """The user's rows first: they name a line more closely. Raises `BadValueError` for a bad row of ours."""
    return (*extra, *LOG_ERRORS.packaged())
