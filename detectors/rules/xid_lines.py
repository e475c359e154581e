"""Reads Xid lines of the kernel log. The lines come from sources/kmsg.py; folds/chain.py folds the drafts.

Layout: `NVRM: Xid (PCI:dddd:bb:dd[ GPU-I:NN[ GPU-CI:NN]]): CODE, [pid=P, name=N, ]TEXT`, in 2012 without
`PCI:` and in 2017 without pid; TEXT may end with ` caused by previous Xid N`. Source: NVIDIA Xid messages,
open driver R515 to R595.

A tenant can choose only the process name, at most 15 characters of it. No decision reads the name, and no
name can imitate a phrase for which the rest of the line is searched: each of these phrases has more than 15
characters. The head is one expression that cannot backtrack, and every other step is a search for a literal,
so the cost of a long line is only in proportion to its length.
"""

from __future__ import annotations

import re

import msgspec

from detectors.catalog.nvlink5 import driver_major
from detectors.catalog.xid import XIDS, XidCatalog, XidRow
from detectors.rules import nvlink
from detectors.rules.base import ADDRESS, Rule
from detectors.rules.engine_faults import place_of
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, Origin, Remedy, Severity

__all__ = ["RULE", "XidLine", "match", "parse"]

_HEAD = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{ADDRESS}(?: GPU-I:(?P<instance>[0-9]+))?(?: GPU-CI:[0-9]+)?\): "
    r"(?P<code>[0-9]{1,4})(?:, *|$)"
)
_RESET_WANTED = re.compile(r"\. RST: (?P<at_once>Yes|No), D-RST: (?P<drained>Yes|No)\s*$")
_INSTANCE_DIGITS_MAX = 4
_RECOVERY_ACTION = 154
_CONTAINMENT = (94, 95)
_NVLINK5_WORKFLOW = "WORKFLOW_NVLINK5_ERR"
_NVLINK_WORKFLOW = "WORKFLOW_NVLINK_ERR"
_CAUSE = " caused by previous Xid "


class XidLine(msgspec.Struct, frozen=True):
    """The fields of one line. `pid` is of the host's namespace, and None if absent or unknown."""

    code: int
    pci: str
    gpu_instance: int | None
    pid: int | None
    name: str
    text: str
    caused_by: int | None


def parse(text: str) -> XidLine | None:
    """Parses a line; returns None if the line is not an Xid line after all."""
    head = _HEAD.match(text)
    if head is None:
        return None
    pid, name, body = _process(text[head.end() :])
    return XidLine(
        code=int(head["code"]),
        pci=head["pci"],
        gpu_instance=_instance(head["instance"]),
        pid=pid,
        name=name,
        text=body,
        caused_by=_cause(body),
    )


def match(line: KernelLine, host: HostFacts, catalog: XidCatalog) -> Draft | None:
    """Reads one NVRM Xid line; returns None if it is not one, or if the node has no device at its address."""
    fields = parse(line.text)
    if fields is None:
        return None
    subject = host.subject(fields.pci, gpu_instance=fields.gpu_instance)
    if subject is None:
        return None
    if fields.code == _RECOVERY_ACTION:
        action = catalog.actions.of(_recovery_value(fields.text))
        return Draft(
            code="xid-154",
            fault=action.fault,
            origin=Origin.DRIVER,
            severity=action.severity,
            subject=subject,
            remedy=action.remedy,
            final=not action.clears,
            verdict=True,
            clears=action.clears,
        )
    row = catalog.row(fields.code)
    severity, remedy = _decoded(row, fields, host, catalog)
    return Draft(
        code=f"xid-{row.code}",
        fault=row.fault,
        origin=row.origin,
        severity=severity,
        subject=subject,
        remedy=remedy,
        final=row.final,
        confined=row.confined and subject.gpu_instance is not None,
        caused_by=f"xid-{fields.caused_by}" if fields.caused_by is not None else "",
        place=place_of(fields.code, fields.text),
    )


def _instance(digits: str | None) -> int | None:
    return int(digits) if digits is not None and len(digits) <= _INSTANCE_DIGITS_MAX else None


def _process(text: str) -> tuple[int | None, str, str]:
    """Returns (pid, name, the rest). A name may contain spaces and colons; it ends at the first comma and
    space."""
    pid: int | None = None
    name = ""
    if text.startswith("pid="):
        value, _, text = text[len("pid=") :].partition(", ")
        pid = int(value) if value.isascii() and value.isdigit() and len(value) <= 10 else None
    if text.startswith("name="):
        name, _, text = text[len("name=") :].partition(", ")
    return pid, name, text


def _cause(text: str) -> int | None:
    _, marker, number = text.rpartition(_CAUSE)
    number = number.strip().rstrip(".")
    return int(number) if marker and number.isascii() and number.isdigit() and len(number) <= 4 else None


def _recovery_value(text: str) -> int | None:
    """Returns the number after `to` in `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and
    Reset)`; None if the text has another form."""
    _, marker, after = text.partition("GPU recovery action changed from ")
    _, to, value = after.partition(" to 0x")
    digits = value.split(" ")[0]
    if not (marker and to and 0 < len(digits) <= 4):
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


def _decoded(row: XidRow, fields: XidLine, host: HostFacts, catalog: XidCatalog) -> tuple[Severity, Remedy]:
    """Returns the severity and remedy of the row, or the more exact ones that the line itself shows.

    The severity is decoded only for rows with NVIDIA's NVLink workflows: a user's row for the same code keeps
    its severity. The remedy of Xid 94 and 95 is decoded for every row.
    """
    if row.vendor_action == _NVLINK_WORKFLOW:
        shown = nvlink.register_severity(nvlink.registers(fields.text), catalog.nvlink_bits)
        return shown or row.severity, Remedy.NONE if shown is Severity.INFO else row.remedy
    if row.vendor_action != _NVLINK5_WORKFLOW:
        return row.severity, _remedy(row.remedy, fields)
    line = nvlink.parse(fields.text)
    plain = row.severity if line is not None and line.is_fatal else Severity.PENDING
    major = driver_major(host.driver_version)
    known = nvlink.decode(row.code, line, catalog.nvlink5, major=major) if line is not None else None
    return (known.severity, known.remedy) if known is not None else (plain, row.remedy)


def _remedy(remedy: Remedy, fields: XidLine) -> Remedy:
    """Returns the remedy. Lines of Xid 94 and 95 end with the reset that is needed: `RST: Yes` at once,
    `D-RST: Yes` once the device is drained."""
    if fields.code not in _CONTAINMENT:
        return remedy
    wanted = _RESET_WANTED.search(fields.text)
    if wanted is None:
        return remedy
    if wanted["drained"] == "Yes":
        return Remedy.DRAIN_AND_RESET
    return Remedy.RESET_DEVICE if wanted["at_once"] == "Yes" else remedy


RULE = Rule(
    "xid",
    family=Family.GPU_XID,
    heads=("NVRM: Xid (",),
    match=match,
    catalog=lambda user: XidCatalog.packaged(user.of(XIDS)),
    tables=(XIDS,),
)
