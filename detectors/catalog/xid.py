"""Defines the Xid rows of xid.toml, and the recovery verdicts in lines of Xid 154."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.load import packaged_rows
from detectors.catalog.nvlink5 import NvLink5Table
from detectors.catalog.nvlink_bits import NvLinkBits, packaged_nvlink_bits
from detectors.catalog.tables import Table
from detectors.wire.contract import Fault, Origin, Remedy, Severity

__all__ = ["XIDS", "RecoveryAction", "RecoveryActions", "XidCatalog", "XidRow"]

_FILE = "xid.toml"


class XidRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One code. The head of xid.toml explains the mapping rule."""

    code: Annotated[int, Meta(ge=1, le=9999)]
    mnemonic: str
    meaning: str
    status: str = ""
    """NVIDIA's status: active, unused (retired), driver header only, ..."""
    vendor_action: str = ""
    """NVIDIA's immediate action, verbatim."""
    fault: Fault
    origin: Origin
    severity: Severity
    remedy: Remedy
    final: bool = False
    confined: bool = False
    """Whether the code harms only the work in one MIG GPU instance if its line names an instance. Only the
    driver's own source says so about a code."""
    reason: str = ""
    """Our decision and its reason, if sources disagree."""
    source: str


XIDS = Table("xid", XidRow, _FILE)
"""The table that a user's file may extend."""


class RecoveryAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One value of the vendor's recovery verdict."""

    value: Annotated[int, Meta(ge=0)]
    text: str
    fault: Fault
    severity: Severity
    remedy: Remedy
    clears: bool = False


class RecoveryActions:
    """The vendor's verdicts by their value, as Xid 154 and NVML report them."""

    def __init__(self, rows: Iterable[RecoveryAction]) -> None:
        self._by_value = {row.value: row for row in rows}

    @staticmethod
    def packaged() -> RecoveryActions:
        """Returns the packaged verdicts. Raises `detectors.text.strict.BadValueError` for a bad row of the
        package's own file."""
        return RecoveryActions(packaged_rows(_FILE, "recovery_action", RecoveryAction))

    def of(self, value: int | None) -> RecoveryAction:
        """Returns the verdict of a value. An unreadable or unknown verdict needs a person, and is never
        "none"."""
        known = self._by_value.get(value) if value is not None else None
        if known is not None:
            return known
        return RecoveryAction(
            value=value or 0,
            text="unknown",
            fault=Fault.UNKNOWN,
            severity=Severity.PENDING,
            remedy=Remedy.CONTACT_SUPPORT,
        )


class XidCatalog:
    """The rows by code. Every code has a row: an unknown code is never healthy."""

    def __init__(
        self,
        rows: Iterable[XidRow],
        actions: RecoveryActions,
        nvlink5: NvLink5Table,
        nvlink_bits: tuple[NvLinkBits, ...],
    ) -> None:
        self._rows = {row.code: row for row in rows}
        self.actions = actions
        self.nvlink5 = nvlink5
        """Sub-codes of Xids 144-150."""
        self.nvlink_bits = nvlink_bits
        """Bits of the registers that Xid 74 shows."""

    @staticmethod
    def packaged(extra: Iterable[XidRow] = ()) -> XidCatalog:
        """Returns the packaged catalogue, with further rows. Raises `detectors.text.strict.BadValueError` for
        a bad row of the package's own file."""
        return XidCatalog(
            [*XIDS.packaged(), *extra],
            RecoveryActions.packaged(),
            NvLink5Table.packaged(),
            packaged_nvlink_bits(),
        )

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, code: int) -> XidRow:
        known = self._rows.get(code)
        if known is not None:
            return known
        return XidRow(
            code=code,
            mnemonic="UNKNOWN",
            meaning="Not in the catalogue",
            fault=Fault.UNKNOWN,
            origin=Origin.KERNEL,
            severity=Severity.PENDING,
            remedy=Remedy.CONTACT_SUPPORT,
            source="none",
        )
