"""Plain NVRM lines that carry no Xid: a GPU that has fallen off the bus. First stop after sources.kmsg."""

from __future__ import annotations

from detectors.catalog.xid import XidCatalog
from detectors.contract import Fault, Origin, Remedy, Severity
from detectors.facts import Draft, HostFacts, KernelLine, parse_pci

__all__ = ["HEADS", "match"]

_SHORT = "NVRM: GPU "
_LONG = "NVRM: The NVIDIA GPU "
HEADS = (_SHORT, _LONG)


def match(line: KernelLine, host: HostFacts, catalog: XidCatalog) -> Draft | None:
    """Reads `NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.`, of older drivers
    `NVRM: GPU at 0000:91:00.0 has fallen off the bus.`, and the long form, which comes as three lines with
    `NVRM:` before each. None for anything else. Source: open driver R595, osinit.c; logs of R470 and before.
    """
    text = " ".join(line.text.split())
    head = _LONG if text.startswith(_LONG) else _SHORT
    pci = text[len(head) :].removeprefix("at ").split(" ")[0].rstrip(":")
    fallen = "NVRM: fallen off the bus" in text if head == _LONG else " has fallen off the bus" in text
    if not fallen or parse_pci(pci) is None:
        return None
    return Draft(
        code="nvrm-fallen-off-bus",
        fault=Fault.DEVICE_LOST,
        origin=Origin.KERNEL,
        severity=Severity.FATAL,
        subject=host.subject(pci),
        remedy=Remedy.REBOOT_NODE,
        final=True,
    )
