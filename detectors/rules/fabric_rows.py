"""Defines the rows for each state of a port, in detectors/catalog/fabric.toml. Pure."""

from __future__ import annotations

import msgspec

from detectors.catalog.tables import Table, UserRows
from detectors.rules.facts import Draft
from detectors.wire.contract import Fault, Origin, Remedy, Severity, Subject, SubjectKind

__all__ = [
    "ADAPTER_GONE",
    "FABRIC",
    "PORT_DEAD",
    "PORT_DOWN",
    "PORT_ERRORS",
    "PORT_FLAPS",
    "PORT_SLOW",
    "FabricRow",
    "draft",
    "fabric_rows",
    "subject_of",
]

PORT_DOWN = "port-down"
PORT_DEAD = "port-dead"
PORT_FLAPS = "port-flaps"
PORT_ERRORS = "port-errors"
PORT_SLOW = "port-slow"
ADAPTER_GONE = "adapter-gone"
_CODES = (PORT_DOWN, PORT_DEAD, PORT_FLAPS, PORT_ERRORS, PORT_SLOW, ADAPTER_GONE)


class FabricRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: str
    meaning: str
    ends: str = ""
    """Text for people about what ends the finding."""
    fault: Fault
    severity: Severity
    remedy: Remedy = Remedy.NONE
    source: str

    def __post_init__(self) -> None:
        """Raises `ValueError` for a code that no check detects."""
        if self.code not in _CODES:
            raise ValueError(f"expected one of {', '.join(_CODES)}, not {self.code!r} - at `$.code`")


FABRIC = Table("fabric", FabricRow, "fabric.toml")


def fabric_rows(user: UserRows | None = None) -> dict[str, FabricRow]:
    """Returns the rows by code. Raises `detectors.text.strict.BadValueError` for a bad row of the package's
    own file."""
    rows = (*FABRIC.packaged(), *(user or UserRows()).of(FABRIC))
    return {row.code: row for row in rows}  # a later row wins


def subject_of(pci: str) -> Subject:
    return Subject(kind=SubjectKind.ADAPTER, pci=pci)


def draft(row: FabricRow, pci: str) -> Draft:
    return Draft(
        code=row.code,
        fault=row.fault,
        origin=Origin.DRIVER,
        severity=row.severity,
        subject=subject_of(pci),
        remedy=row.remedy,
    )
