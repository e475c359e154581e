"""What each state of a port means to Rekindle: rows in detectors/catalog/fabric.toml. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.tables import Table
from detectors.rules.facts import Draft
from detectors.wire.contract import Fault, Finding, Origin, Remedy, Severity, Subject, SubjectKind
from detectors.wire.fitting import limit

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


class FabricRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=limit(Finding, "code"))]
    meaning: str
    ends: str
    """What ends the finding."""
    fault: Fault
    origin: Origin = Origin.KERNEL
    severity: Severity
    remedy: Remedy = Remedy.NONE
    source: str


FABRIC = Table("fabric", FabricRow, "fabric.toml")


def fabric_rows() -> dict[str, FabricRow]:
    """By code. Raises `detectors.text.strict.BadValueError` for a bad row of the package's own file."""
    return {row.code: row for row in FABRIC.packaged()}


def subject_of(pci: str) -> Subject:
    return Subject(kind=SubjectKind.ADAPTER, pci=pci)


def draft(row: FabricRow, pci: str) -> Draft:
    return Draft(
        code=row.code,
        fault=row.fault,
        origin=row.origin,
        severity=row.severity,
        subject=subject_of(pci),
        remedy=row.remedy,
    )
