"""A kernel log that somebody has saved, in whatever form: records, dmesg's text, the journal's text. Pure.

Each line tells its own form, so a file that was put together from several is read, too:

    3,1001,5000000,-;NVRM: Xid ...                            /dev/kmsg
    <3>[ 5000.123456] NVRM: Xid ...                           dmesg --raw
    [ 5000.123456] NVRM: Xid ...                              dmesg
    [Thu Sep 19 02:29:46 2024] NVRM: Xid ...                  dmesg --ctime
    kern  :err   : [ 5000.123456] NVRM: Xid ...               dmesg --decode, with either time
    2026-11-23T20:30:00,123456+00:00 NVRM: Xid ...            dmesg --time-format iso
    Nov 23 20:30:00 node-1 kernel: [ 5000.123456] NVRM: ...   journalctl -k, syslog; also with an ISO time
    {"MESSAGE": "NVRM: Xid ...", ...}                         journalctl -k -o json

Where a form tells the facility, only the kernel's own lines count. A record of several lines is printed as
several lines of one time, each with the driver's head; they are put together again.
Source: util-linux, dmesg(1); systemd, journalctl(1); Linux, Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from detectors.rules.facts import KernelLine
from detectors.sources.kmsg import KERN, parse_record, unescape

__all__ = ["NO_YEAR", "SINCE_BOOT", "SavedLine", "read_saved", "saved_line"]

SINCE_BOOT = datetime(1970, 1, 1, tzinfo=UTC)
"""From here times count that a log gives in seconds since the boot."""
NO_YEAR = 1972
"""The year of times that a log gives without one; it has a 29th of February."""
_RAW = re.compile(r"<(?P<prio>[0-9]{1,4})>")
_DECODED = re.compile(r"(?P<facility>[a-z0-9]+) *:(?P<level>[a-z]+) *: ")
_JOURNAL = re.compile(
    r"(?:(?P<month>[A-Z][a-z]{2}) +(?P<day>[0-9]{1,2}) (?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]+)?|"
    r"(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]\S+)) \S+ (?P<who>[^\s:\[]+)(?:\[[0-9]+\])?: "
)
_SINCE_BOOT = re.compile(r"\[ *(?P<seconds>[0-9]{1,12}\.[0-9]{1,9})\] ?")
_CTIME = re.compile(r"\[(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4})\] ")
_ISO = re.compile(r"(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2}T\S+) ")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_GOES_ON = ("NVRM: The NVIDIA GPU ", "NVRM: API mismatch: ")
"""How records begin that the driver prints with newlines in them."""
_GOES_ON_WITH = "NVRM: "
_IS_NEWS = ("NVRM: Xid ", "NVRM: GPU ", *_GOES_ON)
"""A record of its own, though it may have the same time."""
_LINES_MAX = 4


class SavedLine(msgspec.Struct, frozen=True):
    """The kernel's text and its time; None where the line shows none."""

    text: str
    at: datetime | None
    time: str
    """As it stands there: lines of one record have the same."""


class _JournalEntry(msgspec.Struct):
    message: str | list[int] = msgspec.field(name="MESSAGE", default="")
    transport: str = msgspec.field(name="_TRANSPORT", default="kernel")
    realtime: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="")


def read_saved(lines: Iterable[str]) -> Iterator[KernelLine]:
    """The kernel's lines, numbered from 1. Lines without a time have that of the line before, the first ones
    that of the boot."""
    at = SINCE_BOOT
    for number, line in enumerate(_whole(filter(None, map(saved_line, lines))), start=1):
        at = line.at or at
        yield KernelLine(sequence=number, at=at, text=line.text)


def saved_line(line: str) -> SavedLine | None:
    """None for what is not the kernel's."""
    line = line.rstrip("\r\n")
    if line.startswith("{"):
        entry = _journal_entry(line)
        if entry is not None:
            return entry
    record = parse_record(line.encode("utf-8", "surrogatepass"))
    if record is not None:
        if record.facility != KERN:
            return None
        at = SINCE_BOOT + timedelta(microseconds=record.usec)
        return SavedLine(unescape(record.text), at, str(record.sequence))
    return _plain(line)


def _journal_entry(line: str) -> SavedLine | None:
    try:
        entry = msgspec.json.decode(line, type=_JournalEntry)
    except msgspec.MsgspecError:
        return None
    if not entry.message or entry.transport != "kernel":
        return None
    text = entry.message
    if not isinstance(text, str):
        text = bytes(byte & 255 for byte in text).decode("utf-8", "replace")
    digits = entry.realtime[:18]
    at = SINCE_BOOT + timedelta(microseconds=int(digits)) if digits.isdecimal() else None
    return SavedLine(text, at, f"{digits} {len(text)}")


def _plain(line: str) -> SavedLine | None:
    rest = line
    if raw := _RAW.match(rest):
        if int(raw["prio"]) >> 3 != KERN:
            return None
        rest = rest[raw.end() :]
    if decoded := _DECODED.match(rest):
        if decoded["facility"] != "kern":
            return None
        rest = rest[decoded.end() :]
    at: datetime | None = None
    time = ""
    if journal := _JOURNAL.match(rest):
        if journal["who"] != "kernel":
            return None
        at, time, rest = _of_journal(journal), journal[0], rest[journal.end() :]
    if since := _SINCE_BOOT.match(rest):
        rest, time = rest[since.end() :], since[0]
        at = at or SINCE_BOOT + timedelta(seconds=float(since["seconds"]))
    elif (found := _CTIME.match(rest) or _ISO.match(rest)) is not None and at is None:
        rest, time = rest[found.end() :], found[0]
        at = _at(found)
    return SavedLine(rest, at, time) if rest.strip() else None


def _of_journal(found: re.Match[str]) -> datetime | None:
    """A syslog's time has no year, and orders the lines of one file all the same."""
    if found["iso"] is not None:
        return _iso(found["iso"])
    try:
        clock = datetime.strptime(found["clock"], "%H:%M:%S").time()
        month = _MONTHS.index(found["month"]) + 1
        return datetime.combine(datetime(NO_YEAR, month, int(found["day"])), clock, UTC)
    except ValueError:
        return None


def _at(found: re.Match[str]) -> datetime | None:
    fields = found.groupdict()
    if fields.get("iso"):
        return _iso(fields["iso"])
    try:
        return datetime.strptime(fields["ctime"], "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None


def _iso(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _whole(lines: Iterable[SavedLine]) -> Iterator[SavedLine]:
    """Puts the lines of one record together."""
    held: SavedLine | None = None
    parts = 0
    for line in lines:
        if (
            held is not None
            and line.time == held.time
            and parts < _LINES_MAX
            and line.text.startswith(_GOES_ON_WITH)
            and not line.text.startswith(_IS_NEWS)
            and "\n" not in line.text
        ):
            held = msgspec.structs.replace(held, text=f"{held.text}\n{line.text}")
            parts += 1
            continue
        if held is not None:
            yield held
        held, parts = (line, 1) if line.text.startswith(_GOES_ON) else (None, 0)
        if held is None:
            yield line
    if held is not None:
        yield held
