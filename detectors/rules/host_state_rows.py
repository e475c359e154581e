"""Defines the rows for each state of the node itself, in detectors/catalog/host_states.toml. Pure."""

from __future__ import annotations

import msgspec

from detectors.catalog.tables import Table, UserRows
from detectors.rules.facts import Draft
from detectors.wire.contract import Fault, Origin, Severity, Subject, SubjectKind

__all__ = [
    "BOOTS",
    "BOOT_BY_WATCHDOG",
    "BOOT_OTHERWISE",
    "BOOT_PANIC",
    "CLOCK_DRIFT",
    "HOST_STATES",
    "LASTING",
    "NODE",
    "PIDS_SHORT",
    "PRESSURE_CPU",
    "PRESSURE_IO",
    "PRESSURE_MEMORY",
    "HostStateRow",
    "draft",
    "host_state_rows",
]

BOOT_PANIC = "boot-after-panic"
BOOT_BY_WATCHDOG = "boot-by-watchdog"
BOOT_OTHERWISE = "node-booted"
BOOTS = (BOOT_PANIC, BOOT_BY_WATCHDOG, BOOT_OTHERWISE)
CLOCK_DRIFT = "clock-drift"
PRESSURE_MEMORY = "pressure-memory"
PRESSURE_IO = "pressure-io"
PRESSURE_CPU = "pressure-cpu"
PIDS_SHORT = "pids-short"
LASTING = (CLOCK_DRIFT, PRESSURE_MEMORY, PRESSURE_IO, PRESSURE_CPU, PIDS_SHORT)
_CODES = (*BOOTS, *LASTING)
NODE = Subject(kind=SubjectKind.NODE)


class HostStateRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: str
    meaning: str
    ends: str = ""
    """Text for people about what ends the finding."""
    fault: Fault
    severity: Severity
    source: str

    def __post_init__(self) -> None:
        """Raises `ValueError` for a code that no check detects."""
        if self.code not in _CODES:
            raise ValueError(f"expected one of {', '.join(_CODES)}, not {self.code!r} - at `$.code`")


HOST_STATES = Table("host_states", HostStateRow, "host_states.toml")


def host_state_rows(user: UserRows | None = None) -> dict[str, HostStateRow]:
    """Returns the rows by code. Raises `detectors.text.strict.BadValueError` for a bad row of the package's
    own file."""
    rows = (*HOST_STATES.packaged(), *(user or UserRows()).of(HOST_STATES))
    return {row.code: row for row in rows}  # a later row wins


def draft(row: HostStateRow) -> Draft:
    return Draft(code=row.code, fault=row.fault, origin=Origin.KERNEL, severity=row.severity, subject=NODE)
