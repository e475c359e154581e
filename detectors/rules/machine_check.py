"""Reads machine checks: the errors in a bank of the processor's error registers. Pure.

If AMD's decoder is loaded, the kernel prints the second form instead of the first:

    mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 5: be00000000800400
    [Hardware Error]: CPU:21 (19:1:1) MC1_STATUS[-|UE|MiscV|-|-|TCC|-|-|-|-]: 0xbcb0000000000108

The number before `Bank` is the processor's status register, the last number the bank's. If the kernel finds
an error without an exception, the first number is 0, and newer kernels leave out the word `Exception`: an
error that ended the previous boot stays in its bank over a reset.
Source: Intel SDM volume 3B, 15.3.2.2; AMD64 APM volume 2, 9.3.2; Linux, arch/x86/kernel/cpu/mce and
drivers/edac/mce_amd.c.
"""

from __future__ import annotations

import re

from detectors.rules.base import Rule
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, Fault, Origin, Severity, Subject, SubjectKind

__all__ = ["RULE"]

_HEAD = "mce: [Hardware Error]: CPU "
_LINE = re.compile(
    rf"{re.escape(_HEAD)}[0-9]{{1,5}}: Machine Check(?: Exception)?: (?P<processor>[0-9a-fA-F]{{1,16}}) "
    r"Bank [0-9]{1,3}: (?P<status>[0-9a-fA-F]{16})\s*"
)
_AMD_HEAD = "[Hardware Error]: CPU:"
_AMD_LINE = re.compile(
    rf"{re.escape(_AMD_HEAD)}[0-9]{{1,5}} \([0-9a-f:]{{1,20}}\) MC[0-9]{{1,3}}_STATUS\[[^\]]{{0,80}}\]: "
    r"0x(?P<status>[0-9a-fA-F]{16})\s*"
)
_IN_EXCEPTION = 1 << 2
"""Bit of the processor's status register (MCIP)."""
_VALID = 1 << 63
_UNCORRECTED = 1 << 61
_ENABLED = 1 << 60
_CONTEXT_CORRUPT = 1 << 57
_DEFERRED = 1 << 44
"""On AMD: an error that was not corrected, and whose data no program has used. Intel uses the bit for
something else."""
_ACTION_REQUIRED = 1 << 55
"""On Intel: action is required. On AMD: the context of the task is corrupt, which means the same for the
program that ran there."""


def match(line: KernelLine, host: HostFacts, catalog: None) -> Draft | None:
    """Reads a machine check. A corrected error is a note. An uncorrected error whose data no program has used
    yet, for example one that a scrubber found, makes its node suspect. An error whose data was used, or that
    left the processor in an unknown state, is fatal if it came as an exception.

    Without an exception, the latter two have ended the previous boot: a running kernel would have had an
    exception, and it panics if the processor is in an unknown state. The machine works since then, so its
    node is only suspect. A GPU that hangs the bus, or a driver's bug, leaves such errors behind, too
    (`Machine Check: 0 Bank 5: bea0000000000108` on AMD).

    The latter two are notes if the error was not enabled: nobody was to be informed of it. Firmware
    leaves such errors behind, and healthy machines print them at each boot (`Machine Check: 0 Bank 7:
    ee2000000040110a`). Within an exception the kernel, too, grades them as no error (`Not enabled` in
    kernel/cpu/mce/severity.c).
    """
    of_amd = _AMD_LINE.fullmatch(line.text)
    found = of_amd or _LINE.fullmatch(line.text)
    if found is None:
        return None
    status = int(found["status"], 16)
    if not status & _VALID:
        return None
    code, severity = "mce-corrected", Severity.INFO
    if status & _UNCORRECTED:
        is_before = (
            bool(status & _CONTEXT_CORRUPT) if of_amd else not int(found["processor"], 16) & _IN_EXCEPTION
        )
        code, severity = _uncorrected(status, is_before=is_before)
    elif of_amd and status & _DEFERRED and not status & _CONTEXT_CORRUPT:  # together they mean nothing
        code, severity = "mce-unused", Severity.SUSPECT
    return Draft(
        code=code,
        fault=Fault.HOST_HARDWARE,
        origin=Origin.KERNEL,
        severity=severity,
        subject=Subject(kind=SubjectKind.NODE),
    )


def _uncorrected(status: int, *, is_before: bool) -> tuple[str, Severity]:
    if not status & (_CONTEXT_CORRUPT | _ACTION_REQUIRED):
        return "mce-unused", Severity.SUSPECT
    if not status & _ENABLED:
        return "mce-not-enabled", Severity.INFO
    return ("mce-before", Severity.SUSPECT) if is_before else ("mce-uncorrected", Severity.FATAL)


RULE = Rule(
    "machine_check",
    family=Family.HOST_MEMORY,
    heads=(_HEAD, _AMD_HEAD),
    match=match,
    catalog=lambda user: None,
)
