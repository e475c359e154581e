"""Finds out why a node has booted, from what pstore and a watchdog kept over the boot. The evidence comes
from sources/host.py. Pure.

Only recorded reasons are reported. A clean shutdown, a loss of power and a reset from outside leave nothing
that a node could read with certainty; then the text says that nothing shows the reason. Records of the
firmware are in the kernel log (host_memory.toml: `firmware-fatal-before`).
Sources: Linux, fs/pstore/platform.c (`Panic#1 Part1`, the first line of a record), kernel/panic.c,
include/uapi/linux/watchdog.h (WDIOF_*); systemd-pstore(8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.rules.host_state_rows import BOOT_BY_WATCHDOG, BOOT_OTHERWISE, BOOT_PANIC

__all__ = ["Boot", "CrashRecord", "Reason", "crash_record", "reason_of"]

_HEAD = re.compile(r"(Panic|Oops|Emergency)#[0-9]{1,10} Part[0-9]{1,10}")
_PREFIX = re.compile(r"(?:<[0-9]{1,3}>)?(?:\[ {0,8}[0-9]{1,8}\.[0-9]{6}\](?:\[ {0,8}[TC][0-9]{1,8}\])? )?")
_PANIC = "Kernel panic - not syncing: "
_FIRST = ("BUG: ", "Oops: ", "general protection fault", "Unable to handle kernel ", "watchdog: BUG: ")
"""Beginnings of lines that the kernel prints before a panic: the error itself."""
_BEFORE = timedelta(hours=1)
"""Time that a server may take from its crash to its next boot: it writes its memory to a disk first."""
_AFTER = timedelta(minutes=10)
"""Time after the boot at which a record may be dated. A record without a time of its own is as old as its
file, which may have been written at the boot."""
_BY_WATCHDOG = 0x20
_OTHER_STATUS = {0x01: "overheating", 0x02: "a failed fan", 0x10: "low power"}
_LINE_CHARS_MAX = 160


class CrashRecord(msgspec.Struct, frozen=True):
    """One file of pstore, or of its archive."""

    at: datetime
    is_panic: bool
    """Whether the kernel panicked. False for an oops that the kernel survived, at least for a while."""
    line: str
    """The line that says most; empty if the part has none."""


class Boot(msgspec.Struct, frozen=True):
    """The evidence about the present boot in one sample."""

    boot_id: str
    at: datetime
    records: tuple[CrashRecord, ...] = ()
    watchdogs: tuple[int, ...] = ()
    """`bootstatus` of each watchdog."""


class Reason(msgspec.Struct, frozen=True):
    code: str
    text: str


def crash_record(text: str, at: datetime) -> CrashRecord | None:
    """Parses a record; returns None if it is no record of a crash: a console, or something unreadable."""
    lines = text.splitlines()
    kinds = [found[1] for line in lines[:2] if (found := _HEAD.search(line)) is not None]
    bare = [_PREFIX.sub("", line, count=1) for line in lines]
    panics = [line for line in bare if line.startswith(_PANIC)]
    if not kinds and not panics:
        return None
    errors = [line for line in bare if line.startswith(_FIRST)]
    line = next(iter([*panics, *errors]), "")
    return CrashRecord(at, bool(panics) or "Panic" in kinds, line[:_LINE_CHARS_MAX])


def reason_of(boot: Boot, *, is_known: bool) -> Reason | None:
    """Returns the reason of the boot. `is_known`: an earlier boot was seen, so this boot needs an
    explanation. Returns None if there is nothing to report: the node is seen for the first time, and nothing
    is recorded about it."""
    near = [one for one in boot.records if -_BEFORE <= one.at - boot.at <= _AFTER]
    since = f"booted at {boot.at:%Y-%m-%d %H:%M:%S} UTC"
    if any(one.is_panic for one in near):
        return Reason(BOOT_PANIC, f"{since}, after a kernel panic: {_said(near)}")
    if any(status & _BY_WATCHDOG for status in boot.watchdogs):
        return Reason(BOOT_BY_WATCHDOG, f"{since}, by its watchdog: the system had not answered it in time")
    others = [words for bit, words in _OTHER_STATUS.items() if any(s & bit for s in boot.watchdogs)]
    if others:
        return Reason(BOOT_BY_WATCHDOG, f"{since}; its watchdog recorded {' and '.join(others)} before")
    if near:
        return Reason(BOOT_OTHERWISE, f"{since}, after an error of the kernel: {_said(near)}")
    if not is_known:
        return None
    return Reason(BOOT_OTHERWISE, f"{since}; neither pstore nor a watchdog tells why")


def _said(records: Iterable[CrashRecord]) -> str:
    """Returns the line that says most among all parts: the reason of the panic."""
    lines = sorted((one.line for one in records if one.line), key=lambda line: not line.startswith(_PANIC))
    return lines[0].removeprefix(_PANIC) if lines else "its record holds no line that says why"
