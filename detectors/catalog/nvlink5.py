"""Defines the rows of nvlink5.toml: the meaning of the register words of an NVLink5 line (Xid 144-150)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.load import packaged_rows
from detectors.wire.contract import Remedy, Severity

__all__ = ["NVLINK5_XIDS", "NvLink5Row", "NvLink5Table", "driver_major"]

NVLINK5_XIDS = range(144, 151)
_NEW_LAYOUT_MAJOR = 575
_GRAVITY = {Severity.INFO: 0, Severity.PENDING: 1, Severity.FATAL: 2}

_Layout = Annotated[str, Meta(pattern="^[01-]{32}$")]
_Hex = Annotated[str, Meta(pattern="^0x[0-9A-F]{8}$")]


class NvLink5Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One sub-code. The head of nvlink5.toml explains the fields."""

    name: str
    xid: Annotated[int, Meta(ge=NVLINK5_XIDS.start, lt=NVLINK5_XIDS.stop)]
    units: Annotated[tuple[str, ...], Meta(min_length=1)]
    layout_before_r575: _Layout
    layout_r575: _Layout
    error_status: tuple[_Hex, ...] = ()
    vendor_action: str
    investigate: str
    vendor_severity: str
    severity: Severity
    remedy: Remedy
    source: str

    @property
    def statuses(self) -> frozenset[int]:
        return frozenset(int(value, 16) for value in self.error_status)

    def has_layout(self, intr_info: int, *, is_r575: bool) -> bool:
        layout = self.layout_r575 if is_r575 else self.layout_before_r575
        mask = int("".join("0" if bit == "-" else "1" for bit in layout), 2)
        return intr_info & mask == int(layout.replace("-", "0"), 2)


class NvLink5Table:
    def __init__(self, rows: Iterable[NvLink5Row]) -> None:
        self._rows = tuple(rows)

    @staticmethod
    def packaged() -> NvLink5Table:
        return NvLink5Table(packaged_rows("nvlink5.toml", "nvlink5", NvLink5Row))

    @property
    def rows(self) -> tuple[NvLink5Row, ...]:
        return self._rows

    def decode(
        self, xid: int, units: frozenset[str], intr_info: int, error_status: int, *, major: int | None
    ) -> NvLink5Row | None:
        """Returns the row for these words, or None if no row fits. The layout of the driver's own era is
        tried first. If the driver is not known and both layouts fit, the less severe row is taken. In the
        present table no words fit both, except for Xid 150, where both rows mean the same."""
        of_xid = [row for row in self._rows if row.xid == xid and not units.isdisjoint(row.units)]
        fits = []
        for is_r575 in (False, True) if major is not None and major < _NEW_LAYOUT_MAJOR else (True, False):
            rows = [row for row in of_xid if row.has_layout(intr_info, is_r575=is_r575)]
            if (found := _by_status(rows, error_status)) is not None:
                fits.append(found)
        if not fits:
            return None
        return fits[0] if major is not None else min(fits, key=lambda row: _GRAVITY[row.severity])


def _by_status(rows: list[NvLink5Row], error_status: int) -> NvLink5Row | None:
    """Returns the row of this status; None if it is not known. Several bits are several errors: each must be
    known, and the gravest one counts."""
    for row in rows:
        if not row.error_status or error_status in row.statuses:
            return row
    of_bit = {status: row for row in rows for status in row.statuses if status.bit_count() == 1}
    if len(of_bit) < len(rows) or not error_status:  # a number, not a set of bits
        return None
    bits = [1 << n for n in range(32) if error_status >> n & 1]
    if not of_bit.keys() >= set(bits):
        return None
    return max((of_bit[bit] for bit in bits), key=lambda row: _GRAVITY[row.severity])


def driver_major(version: str) -> int | None:
    """Returns the branch of a driver: 580 of `580.95.05`; None if it is not known."""
    digits = version.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else None
