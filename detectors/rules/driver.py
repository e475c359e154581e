"""Reads plain NVRM lines that contain no Xid: a GPU that has fallen off the bus. The lines come from
sources/kmsg.py."""

from __future__ import annotations

import re

from detectors.rules.base import ADDRESS, Rule
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, Fault, Origin, Remedy, Severity

__all__ = ["RULE"]

_SHORT = "NVRM: GPU "
_LONG = "NVRM: The NVIDIA GPU "

_FALLEN = re.compile(
    rf"{_SHORT}(?:at )?(?:PCI:)?{ADDRESS}:? (?:GPU )?has fallen off the bus\.?\s*(?:\n.*)?", re.DOTALL
)
_FALLEN_AT_PROBE = re.compile(
    rf"{_LONG}{ADDRESS} \(PCI ID: [0-9a-fA-F]{{4}}:[0-9a-fA-F]{{4}}\) installed in this system has "
    r"fallen off the bus and is not responding to commands\.?"
)


def match(line: KernelLine, host: HostFacts, catalog: None) -> Draft | None:
    """Reads the reports of a GPU that has fallen off the bus; returns None for any other line.

        NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.
        NVRM: GPU at 0000:91:00.0 has fallen off the bus.       older drivers

    A third, long form comes as one record of three lines, with `NVRM:` before each and with varying line
    breaks.
    Source: open driver R515 to R595, osinit.c and osapi.c; logs of R470 and before.
    """
    if line.text.startswith(_LONG):
        found = _FALLEN_AT_PROBE.fullmatch(" ".join(line.text.split()).replace(" NVRM: ", " "))
    else:
        found = _FALLEN.fullmatch(line.text)
    subject = host.subject(found["pci"]) if found is not None else None
    if subject is None:
        return None
    return Draft(
        code="nvrm-fallen-off-bus",
        fault=Fault.DEVICE_LOST,
        origin=Origin.KERNEL,
        severity=Severity.FATAL,
        subject=subject,
        remedy=Remedy.REBOOT_NODE,
        final=True,
    )


RULE = Rule("driver", family=Family.GPU_XID, heads=(_SHORT, _LONG), match=match, catalog=lambda user: None)
