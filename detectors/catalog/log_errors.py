"""The rows of log_errors.toml: literal text of training logs that names an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.load import packaged_rows

__all__ = ["LogErrorRow", "packaged_log_errors"]


class LogErrorRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: Annotated[str, Meta(pattern=r"^log-[a-z0-9-]+$", max_length=63)]
    patterns: tuple[Annotated[str, Meta(min_length=4, max_length=200)], ...]
    """Literal and case-sensitive; any one matches."""
    meaning: str
    propagated: bool
    traceback: bool = False
    """True for the one row that names the end of a Python traceback."""
    source: str


def packaged_log_errors(extra: Iterable[LogErrorRow] = ()) -> tuple[LogErrorRow, ...]:
    """The user's rows first: they name a line more closely. Raises `BadValueError` for a bad row of ours."""
    return (*extra, *packaged_rows("log_errors.toml", "log_error", LogErrorRow))
