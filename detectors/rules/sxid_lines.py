"""Reads SXid lines of NVSwitches. The rows are in detectors/catalog/sxid.toml.

Layout: `nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)`.
Some codes come without a severity. After such a line come others of the same code with its registers
(`Severity 1 Engine instance ...`, `Data {0x...}`), which contain nothing new. Source: open driver R515 to
R595.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from detectors.catalog.tables import Table
from detectors.rules.base import ADDRESS, Rule
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, Fault, Origin, Remedy, Severity, SubjectKind

__all__ = ["RULE", "SXIDS", "SxidRow"]

_HEAD = "nvidia-nvswitch"
_LINE = re.compile(
    rf"{_HEAD}[0-9]{{1,3}}: SXid \(PCI:{ADDRESS}\): (?P<code>[0-9]{{1,5}}), (?P<word>Fatal|Non-fatal)?"
)
_REGISTERS = ("Severity ", "Data {")


class SxidRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One code. The comment at the top of sxid.toml explains the fields."""

    code: int
    mnemonic: str
    driver: str = ""
    """The severity that the open driver prints, by generation of the switch."""
    guide: str = ""
    """The class in NVIDIA's Fabric Manager guide."""
    nvsentinel: str = ""
    fault: Fault = Fault.NVSWITCH
    severity: Severity
    fatal: Severity = Severity.FATAL
    nonfatal: Severity = Severity.INFO
    reason: str = ""
    source: str


SXIDS = Table("sxid", SxidRow, "sxid.toml")


class Sxids:
    def __init__(self, rows: Iterable[SxidRow]) -> None:
        self._rows = {row.code: row for row in rows}

    def row(self, code: int) -> SxidRow:
        known = self._rows.get(code)
        if known is not None:
            return known
        return SxidRow(code=code, mnemonic="UNKNOWN", severity=Severity.SUSPECT, source="none")


def match(line: KernelLine, host: HostFacts, catalog: Sxids) -> Draft | None:
    fields = _LINE.match(line.text)
    if fields is None or line.text.startswith(_REGISTERS, fields.end()):
        return None
    subject = host.subject(fields["pci"], kind=SubjectKind.SWITCH)
    if subject is None:
        return None
    row = catalog.row(int(fields["code"]))
    severity = {"Fatal": row.fatal, "Non-fatal": row.nonfatal}.get(fields["word"], row.severity)
    return Draft(
        code=f"sxid-{row.code}",
        fault=row.fault,
        origin=Origin.FABRIC,
        severity=severity,
        subject=subject,
        remedy=Remedy.REBOOT_NODE if severity is Severity.FATAL else Remedy.NONE,
    )


RULE = Rule(
    "sxid",
    family=Family.NVSWITCH_SXID,
    heads=(_HEAD,),
    match=match,
    catalog=lambda user: Sxids((*SXIDS.packaged(), *user.of(SXIDS))),
    tables=(SXIDS,),
)
