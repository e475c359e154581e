"""Decodes the register words of NVLink lines: Xids 144-150 (NVLink5) and 74 (before it). Called
by xid_lines.py.

NVLink5: `UNIT Fatal|Nonfatal XC0 i0 Link 03 (INTRINFO ERRORSTATUS DEBUG...)` with any digits; the link is -1
if there is none. Some drivers pad the columns: `NETIR_LINK_EVT  Fatal   XC0 i0 Link 01`.
Before: `NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)`.
Source: NVIDIA Xid catalogue R595, WORKFLOW_NVLINK5_ERR and WORKFLOW_NVLINK_ERR.
Only the last part of a line is read: a process name comes before it, and may contain a comma.
"""

from __future__ import annotations

import msgspec

from detectors.catalog.nvlink5 import NvLink5Row, NvLink5Table
from detectors.catalog.nvlink_bits import NvLinkBits
from detectors.wire.contract import Severity

__all__ = ["NvLink5Line", "decode", "parse", "register_severity", "registers"]

_WORDS = {"Fatal": True, "Nonfatal": False}
_HEX = frozenset("0123456789abcdefABCDEF")
_AFTER_UNIT = 5
"""Number of tokens after the unit's name, which may itself contain a space: `Fatal XC0 i0 Link 03`."""
_REGISTERS = 7
_ON_LINK = "NVLink: fatal error detected on link "


class NvLink5Line(msgspec.Struct, frozen=True):
    units: frozenset[str]
    """Names of the unit. A unit that two drivers name differently may be printed with both names:
    `TLW_RX/TLW_RX_PIPE1`."""
    is_fatal: bool
    words: tuple[int, ...]


def parse(text: str) -> NvLink5Line | None:
    """Reads the text after the process; returns None if it has another form. `words` is empty if the line has
    none."""
    head, _, rest = text.rpartition(", ")[2].partition(" (")
    tokens = head.split()
    unit, after = " ".join(tokens[:-_AFTER_UNIT]), tokens[-_AFTER_UNIT:]
    if not unit or after[0] not in _WORDS or after[3] != "Link":
        return None
    words, closed, _ = rest.partition(")")
    return NvLink5Line(
        units=frozenset(unit.split("/")),
        is_fatal=_WORDS[after[0]],
        words=_numbers(words.split()) if closed else (),
    )


def decode(xid: int, line: NvLink5Line, table: NvLink5Table, *, major: int | None) -> NvLink5Row | None:
    """Returns the row of the sub-code; None if no row fits, or if the row contradicts the driver's own
    severity."""
    if len(line.words) < 2:
        return None
    row = table.decode(xid, line.units, line.words[0], line.words[1], major=major)
    if row is None or (row.vendor_severity and _WORDS[row.vendor_severity] is not line.is_fatal):
        return None
    return row


def registers(text: str) -> tuple[int, ...]:
    """Returns the seven register words of an Xid 74 line; none if the line has another form."""
    _, found, rest = text.rpartition(_ON_LINK)
    words, closed, _ = rest.partition("(")[2].partition(")")
    numbers = _numbers(words.split(", ")) if found and closed else ()
    return numbers if len(numbers) == _REGISTERS else ()


def register_severity(words: tuple[int, ...], rows: tuple[NvLinkBits, ...]) -> Severity | None:
    """Returns the severity of the gravest bit; None if no bit is set, or if one of them has no row."""
    severities = []
    for number, word in enumerate(words, start=1):
        for bit in (n for n in range(word.bit_length()) if word >> n & 1):
            row = next((row for row in rows if row.register == number and bit in row.bits), None)
            if row is None:
                return None
            severities.append(row.severity)
    order = (Severity.FATAL, Severity.PENDING, Severity.INFO)
    return next((severity for severity in order if severity in severities), None)


def _numbers(words: list[str]) -> tuple[int, ...]:
    """Parses hexadecimal words of at most 32 bits; returns none at all if one is something else."""
    digits = [word.removeprefix("0x") for word in words]
    if any(not 0 < len(word) <= 8 or not _HEX.issuperset(word) for word in digits):
        return ()
    return tuple(int(word, 16) for word in digits)
