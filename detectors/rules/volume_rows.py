"""Defines the rows for each state of a pod's volume, in detectors/catalog/volumes.toml. Pure."""

from __future__ import annotations

import msgspec

from detectors.catalog.tables import Table, UserRows
from detectors.rules.facts import Draft
from detectors.rules.volume_states import Volume
from detectors.wire.contract import Fault, Origin, Severity, Subject, SubjectKind
from detectors.wire.fitting import fitted

__all__ = [
    "VOLUMES",
    "VOLUME_BROKEN",
    "VOLUME_FULL",
    "VOLUME_INODES",
    "VOLUME_SILENT",
    "VolumeRow",
    "draft",
    "subject_of",
    "volume_rows",
]

VOLUME_FULL = "volume-full"
VOLUME_INODES = "volume-inodes"
VOLUME_SILENT = "volume-silent"
VOLUME_BROKEN = "volume-broken"
_CODES = (VOLUME_FULL, VOLUME_INODES, VOLUME_SILENT, VOLUME_BROKEN)


class VolumeRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: str
    meaning: str
    ends: str = ""
    """Text for people about what ends the finding."""
    fault: Fault
    origin: Origin
    severity: Severity
    source: str

    def __post_init__(self) -> None:
        """Raises `ValueError` for a code that no check detects."""
        if self.code not in _CODES:
            raise ValueError(f"expected one of {', '.join(_CODES)}, not {self.code!r} - at `$.code`")


VOLUMES = Table("volumes", VolumeRow, "volumes.toml")


def volume_rows(user: UserRows | None = None) -> dict[str, VolumeRow]:
    """Returns the rows by code. Raises `detectors.text.strict.BadValueError` for a bad row of the package's
    own file."""
    rows = (*VOLUMES.packaged(), *(user or UserRows()).of(VOLUMES))
    return {row.code: row for row in rows}  # a later row wins


def subject_of(volume: Volume) -> Subject:
    return fitted(Subject, kind=SubjectKind.POD, pod=volume.pod, volume=volume.name)


def draft(row: VolumeRow, subject: Subject) -> Draft:
    return Draft(
        code=row.code,
        fault=row.fault,
        origin=row.origin,
        severity=row.severity,
        subject=subject,
    )
