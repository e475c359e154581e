"""Defines the report of a repair step, which the step's pod sends to the controller. Pure.

A pod writes the report as its termination message, of which the kubelet keeps 4 KiB. So messages that do not
fit are cut, the longest first, and no check is ever left out.
Source: Kubernetes, "Determine the Reason for Pod Failure" (a message holds at most 4096 bytes).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.text.cutting import cut
from detectors.text.strict import BadValueError, convert

__all__ = [
    "CHECKS_MAX",
    "MESSAGE_BYTES_MAX",
    "NAME",
    "NAME_CHARS_MAX",
    "REPORT_BYTES_MAX",
    "Check",
    "Outcome",
    "ReportError",
    "ValidationReport",
    "decode",
    "encode",
]

REPORT_BYTES_MAX = 4096
CHECKS_MAX = 32
"""Number of checks that fit with the longest names and without messages."""
NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME_CHARS_MAX = 63
MESSAGE_BYTES_MAX = 1024
_CUT = "..."
_CUT_STEP_BYTES = 16


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"
    """Nothing is known: the message names what was missing."""


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: Annotated[str, Meta(pattern=f"^{NAME}$", max_length=NAME_CHARS_MAX)]
    outcome: Outcome
    message: Annotated[
        str, Meta(description="the observation, or the part that was missing", max_length=MESSAGE_BYTES_MAX)
    ] = ""


class ValidationReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checks: Annotated[tuple[Check, ...], Meta(min_length=1, max_length=CHECKS_MAX)]

    def __post_init__(self) -> None:
        names = [check.name for check in self.checks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"expected each check once, got {', '.join(twice)} twice")

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)


class ReportError(ValueError):
    """A termination message that is no report."""


def encode(report: ValidationReport) -> bytes:
    """Returns JSON of at most `REPORT_BYTES_MAX`."""
    for message_bytes in range(MESSAGE_BYTES_MAX, -1, -_CUT_STEP_BYTES):
        checks = tuple(_shorter(check, message_bytes) for check in report.checks)
        data = msgspec.json.encode(ValidationReport(checks=checks))
        if len(data) <= REPORT_BYTES_MAX:
            return data
    raise AssertionError(f"{len(report.checks)} checks do not fit; at most {CHECKS_MAX} are allowed")


def decode(message: str, *, where: str) -> ValidationReport:
    """Parses a report. `where` names the pod. Raises `ReportError`, which shows the text that was found
    instead of a report."""
    try:
        data = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError) as error:
        shown = cut(message, 80) or "(empty)"
        raise ReportError(
            f'{where}: termination message: expected JSON {{"checks": [...]}}, got {shown!r}: {error}'
        ) from error
    try:
        return convert(data, ValidationReport, file=where, where="termination message")
    except BadValueError as error:
        raise ReportError(str(error)) from error


def _shorter(check: Check, bytes_max: int) -> Check:
    if len(check.message.encode("utf-8", "replace")) <= bytes_max:
        return check
    message = cut(check.message, bytes_max - len(_CUT)) + _CUT if bytes_max > len(_CUT) else ""
    return msgspec.structs.replace(check, message=message)
