"""Reads a saved kernel log in any form: records, dmesg's text, the journal's text. Pure.

Each line shows its own form, so a file that was put together from several logs is readable, too. The parts
before the kernel's text are removed piece by piece, in any order:

    3,1001,5000000,-;NVRM: Xid ...                            /dev/kmsg
    <3>[ 5000.123456] NVRM: Xid ...                           dmesg --raw; also with [T1234], the caller
    [Thu Sep 19 02:29:46 2024] NVRM: Xid ...                  dmesg --ctime, --reltime, --show-delta, --color
    kern  :err   : [ 5000.123456] NVRM: Xid ...               dmesg --decode, with either time
    2026-11-23T20:30:00,123456+00:00 NVRM: Xid ...            dmesg --time-format iso
    Nov 23 20:30:00 node-1 kernel: [ 5000.123456] NVRM: ...   journalctl -k, syslog; also with other times
    <3>1 2026-11-23T20:30:00Z node-1 kernel - - - NVRM: ...   RFC 5424
    2026-11-23T20:30:00Z stdout F NVRM: Xid ...               the log of a container
    {"log": "... NVRM: Xid ...", ...}                         the log of a container by Docker or Fluent Bit
    {"message": "... NVRM: Xid ...", ...}                     Vector, Filebeat, Logstash
    ... message repeated 3 times: [ NVRM: Xid ...]            rsyslog, for equal lines
    10.0.0.1: kern: err: [2026-11-23T20:30:00Z]: NVRM: ...    talosctl dmesg
    kernel: NVRM: Xid ...                                     the journal or syslog without time and host
    {"MESSAGE": "NVRM: Xid ...", ...}                         journalctl -k -o json, json-pretty
    {"pri": 3, "msg": "NVRM: Xid ...", ...}                   dmesg --json, of several lines as json-pretty
    MESSAGE=NVRM: Xid ...                                     journalctl -k -o export, verbose

`journalctl -o export` prints a message with a newline after a line `MESSAGE` and the 8 bytes of its length.
grep prints the name of the file before each line. rsyslog writes a newline within a record as `#012`.

If a form shows the facility or the program, only the kernel's own lines count. A record of several lines is
printed as several lines with the same time, or with the further lines indented; these lines are joined again.
Source: util-linux, dmesg(1); systemd, journalctl(1); RFC 5424; Linux, Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from detectors.rules.facts import KernelLine
from detectors.sources.kmsg import KERN, parse_record, unescape

__all__ = ["NO_YEAR", "SINCE_BOOT", "SavedLine", "read_saved", "saved_line"]

SINCE_BOOT = datetime(1970, 1, 1, tzinfo=UTC)
"""Start of times that a log gives in seconds since the boot."""
NO_YEAR = 1972
"""Year for times that a log gives without a year; it has a 29th of February."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RAW = re.compile(r"<(?P<prio>[0-9]{1,4})>(?:1 (?=[0-9]{4}-))?")
_DECODED = re.compile(
    r"(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]) *:"
    r"(?:emerg|alert|crit|err|warn|notice|info|debug) *: "
)
_MONTH = r"(?P<month>[^\W\d_]{2,10}\.?|[0-9]{1,2}[月월])"
"""The journal names the month in the reader's language: `Okt`, `févr.`, `11月`."""
_CLOCK = rf"{_MONTH} +(?P<day>[0-9]{{1,2}}) (?:[0-9]{{4}} )?(?P<clock>[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})"
_ISO_TIME = r"(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+(?:Z| ?[+-][0-9:]+| [A-Z]{3,5})?)"
_ZONE = re.compile(r" (?:[A-Z]{3,5}$|(?=[+-]))")
"""The name of the time zone, which does not give the offset from UTC, or the blank before a numeric
offset."""
_WITH_POINT = _ISO_TIME.replace("[0-9:.,]", "[0-9:.]")
"""The journal's ISO time. dmesg prints a comma in it, and names no host and no program: there `EDAC MC0: ` is
a driver's text."""
_FULL = rf"(?:[A-Z][a-z]{{2}} )?{_WITH_POINT}"
_UNIX = r"(?P<unix>[0-9]{9,11}(?:\.[0-9]+)?)"
_WHO = r" (?:[^\s\[\]:]+ (?P<who>[^\s:\[\]]+)(?:\[[0-9]+\])?|kernel): "
"""Host and program. Without a host (`--no-hostname`) a driver's name would look like a program's name: only
the kernel is recognised then."""
_JOURNAL = tuple(re.compile(rf"{time}(?:\.[0-9]+)?{_WHO}") for time in (_CLOCK, _FULL, _UNIX))
_MONOTONIC = re.compile(
    r"\[ *(?P<monotonic>[0-9]{1,12}\.[0-9]{1,9})(?: <[ 0-9.]{1,24}\*?>| {16})?\] "
    r"(?:[^\s\[\]:]+ )?kernel: "
)
"""The journal's monotonic time. With another program the line would look like a driver's text about its
device, so only `kernel` is recognised."""
_TALOS = re.compile(rf"(?:\S+: )?(?P<facility>[a-z]+[0-7]?): +[a-z]+: \[{_WITH_POINT}\]: ?")
_GREP = re.compile(
    r"[\w./-]{0,200}?(?:messages|syslog|kern\.log|dmesg)[\w.-]{0,40}[:-](?:[0-9]{1,9}[:-])?(?=\S)"
)
"""The name of the file, and perhaps the number of the line, that grep prints before a line."""
_BARE = re.compile(r"kernel: ?(?=\S)")
_RFC_5424 = re.compile(
    rf"{_WITH_POINT} [^\s\[]\S* (?P<who>\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) ?\ufeff?"
)
"""The structured data may have several elements, and a byte order mark may follow them."""
_SINCE_BOOT = re.compile(r"\[ *(?P<seconds>[0-9]{1,12}\.[0-9]{1,9})(?: *<[ 0-9.+]*>)?\] ?")
_DELTA = re.compile(
    r"(?:\[ *\+[0-9.]+\]|\[ *<[ 0-9.+]*>\]|\[[A-Z][a-z]{2} ?[0-9]{1,2} [0-9]{2}:[0-9]{2}\]) ?"
)
_CALLER = re.compile(r"\[ *[TC][0-9]+\] ?")
_CTIME = re.compile(
    r"\[(?P<ctime>[^\s\]]{1,16} +[^\s\]]{1,16} +[0-9]{1,2} [0-9:]{8} [0-9]{4})(?: *<[ 0-9.+]*>)?\] "
)
"""dmesg's readable time. The names of the day and the month are in the reader's language."""
_ISO = re.compile(rf"{_ISO_TIME} ")
_CONTAINER = re.compile(r"(?:\[pod/\S+\] |std(?:out|err) [FP] )")
_MESSAGE = "MESSAGE"
_FIELD = re.compile(rf" *{_MESSAGE}=")
_LENGTH = re.compile(r"[^\0]{1,3}\0{5,7}")
_NEWLINE_OF_RSYSLOG = "#012"
_REPEATED = re.compile(r"message repeated [0-9]{1,9} times: \[ ?(?=.*\]$)")
_PIECES_MAX = 8
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_GOES_ON = ("NVRM: The NVIDIA GPU ", "NVRM: API mismatch: ", "NVRM: This PCI I/O region assigned ")
"""Beginnings of records that the driver prints with newlines in them."""
_GOES_ON_WITH = "NVRM: "
_IS_NEWS = ("NVRM: Xid ", "NVRM: GPU ", *_GOES_ON)
"""Beginnings of records that are separate, even if they have the same time as the line before."""
_LINES_MAX = 4
_OBJECT_BEGINS = ('"', "]", *string.digits)
"""Beginnings of lines within a JSON object."""
_OBJECT_LINES_MAX = 10_000
"""Number of lines of a JSON object. Journals print a message that is no text as one number a line."""


class SavedLine(msgspec.Struct, frozen=True):
    """The kernel's text and its time; the time is None if the line shows none."""

    text: str
    at: datetime | None
    time: str
    """The time as printed: the lines of one record have the same."""
    has_form: bool = True
    """Whether something before the kernel's text showed the form of this log."""
    is_indented: bool = False


class _DmesgEntry(msgspec.Struct):
    msg: str = ""
    time: float | str = ""
    fac: str | int = "kern"


class _CollectorEntry(msgspec.Struct):
    log: object = ""
    """In Filebeat's entries an object about the file."""
    message: object = ""
    transport: object = msgspec.field(name="_TRANSPORT", default="kernel")
    """Vector keeps this field of the journal."""

    @property
    def text(self) -> str:
        texts = (one for one in (self.log, self.message) if isinstance(one, str))
        return next(filter(str.strip, texts), "")


class _JournalEntry(msgspec.Struct):
    message: str | list[int] = msgspec.field(name="MESSAGE", default="")
    transport: str = msgspec.field(name="_TRANSPORT", default="kernel")
    realtime: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="")
    facility: str = msgspec.field(name="SYSLOG_FACILITY", default="0")


def read_saved(lines: Iterable[str]) -> Iterator[tuple[KernelLine, bool]]:
    """Yields the kernel's lines, numbered from 1, each with whether its form is known. A line without a time
    gets the time of the line before; the first lines get the time of the boot."""
    at = SINCE_BOOT
    found = filter(None, map(saved_line, _in_one_line(_exported(lines))))
    for number, line in enumerate(_whole(found), start=1):
        at = line.at or at
        yield KernelLine(sequence=number, at=at, text=line.text), line.has_form


def saved_line(line: str) -> SavedLine | None:
    """Parses one line; returns None if it is not the kernel's."""
    line = line.rstrip("\r\n")
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if line.startswith(" ") and not _FIELD.match(line):
        text = line.strip()
        is_more = text.startswith(_GOES_ON_WITH)
        return SavedLine(text, None, "", has_form=False, is_indented=True) if is_more else None
    if line.startswith("{"):
        with contextlib.suppress(msgspec.MsgspecError):
            entry = msgspec.json.decode(line, type=_CollectorEntry)
            if text := entry.text:
                is_text = entry.transport == "kernel" and not text.startswith("{")
                return saved_line(text) if is_text else None
            dmesg = msgspec.json.decode(line, type=_DmesgEntry)
            return _of_dmesg(dmesg) if dmesg.msg else _of_entry(msgspec.json.decode(line, type=_JournalEntry))
    record = parse_record(line.encode("utf-8", "surrogatepass")) if line[:1].isdigit() else None
    if record is not None:
        if record.facility != KERN:
            return None
        at = SINCE_BOOT + timedelta(microseconds=record.usec)
        return SavedLine(unescape(record.text), at, str(record.sequence))
    return _plain(line)


def _exported(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines, with each exported message with a newline as the lines of a record. The bytes of the
    length are no text, so they are recognised and not read."""
    is_next = is_in = False
    for line in lines:
        length = _LENGTH.match(line) if is_next else None
        text = line if length is None else line[length.end() :]
        is_in = (length is not None or is_in) and text.startswith(_GOES_ON_WITH)
        yield f"{_MESSAGE}={text}" if is_in else line
        is_next = line.rstrip("\r\n") == _MESSAGE


def _in_one_line(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines, with each JSON object of several lines as one line. If objects are nested, the
    innermost counts: dmesg prints a list of objects. Lines that turn out to be no object stay as they
    were."""
    held: list[str] = []
    for line in lines:
        text = line.strip()
        is_begin = text == "{" or (bool(held) and text.endswith("{"))
        if held and text.startswith("}"):
            whole = "".join(("{", *map(str.strip, held[1:]), "}"))
            yield from [whole] if _is_object(whole) else held
            held = []
        elif is_begin or (held and (len(held) >= _OBJECT_LINES_MAX or not text.startswith(_OBJECT_BEGINS))):
            yield from held
            held = []
        if is_begin:
            held = [line]
        elif held:
            held.append(line)
        elif not text.startswith("}"):
            yield line
    yield from held


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return False
    return True


def _of_dmesg(entry: _DmesgEntry) -> SavedLine | None:
    if entry.fac not in ("kern", KERN):
        return None
    at = _after(entry.time) if isinstance(entry.time, float) else _iso(entry.time)
    return SavedLine(entry.msg.rstrip("\n"), at, f"{entry.time} {len(entry.msg)}")


def _of_entry(entry: _JournalEntry) -> SavedLine | None:
    if not entry.message or entry.transport != "kernel" or entry.facility != str(KERN):
        return None
    text = entry.message
    if not isinstance(text, str):
        text = bytes(byte & 255 for byte in text).decode("utf-8", "replace")
    digits = entry.realtime[:18]
    at = _after(int(digits) / 1e6) if digits.isdecimal() else None
    return SavedLine(text, at, f"{digits} {len(text)}")


def _plain(line: str) -> SavedLine | None:
    rest, at, time, has_form = line, None, "", False
    for _ in range(_PIECES_MAX):
        found = None
        for form in _FORMS.get(rest[:1], _OF_OTHER_LETTERS):
            if (found := form.match(rest)) is not None:
                break
        if found is None:
            break
        fields = found.groupdict()
        if not _is_the_kernels(fields):
            return None
        at, time = at or _at(fields), time + found[0]
        rest, has_form = rest[found.end() :], True
        if found.re is _REPEATED:
            rest = rest.removesuffix("]")
    if not rest.strip():
        return None
    return SavedLine(rest.replace(_NEWLINE_OF_RSYSLOG, "\n"), at, time, has_form)


_UPPER, _LETTERS, _DIGITS = string.ascii_uppercase, string.ascii_letters, string.digits
_BEGINNINGS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("<", _RAW),
    ("kumdaslnc", _DECODED),
    (_LETTERS + _DIGITS, _TALOS),
    (_LETTERS + _DIGITS, _JOURNAL[0]),
    (_UPPER + _DIGITS, _JOURNAL[1]),
    (_DIGITS, _JOURNAL[2]),
    ("[", _MONOTONIC),
    (_DIGITS, _RFC_5424),
    ("[", _SINCE_BOOT),
    ("[", _DELTA),
    ("[", _CALLER),
    ("[", _CTIME),
    (_DIGITS, _ISO),
    ("[s", _CONTAINER),
    (" M", _FIELD),
    ("k", _BARE),
    ("m", _REPEATED),
    (_LETTERS + "/.", _GREP),
)
"""The characters with which each form begins, so that for most lines of a long log few forms are tried."""
_FORMS = {
    first: tuple(form for firsts, form in _BEGINNINGS if first in firsts)
    for first in sorted({first for firsts, _ in _BEGINNINGS for first in firsts})
}
_OF_OTHER_LETTERS = (_JOURNAL[0],)
"""Forms that may begin with any other character: a month in another script."""


def _is_the_kernels(fields: dict[str, str | None]) -> bool:
    prio, facility, who = fields.get("prio"), fields.get("facility"), fields.get("who")
    return (
        (prio is None or int(prio) >> 3 == KERN)
        and (facility is None or facility == "kern")
        and (who is None or who == "kernel")
    )


def _at(fields: dict[str, str | None]) -> datetime | None:
    if clock := fields.get("clock"):
        return _without_year(str(fields["month"]), str(fields["day"]), clock)
    if iso := fields.get("iso"):
        return _iso(iso)
    if ctime := fields.get("ctime"):
        return _parsed(ctime, "%a %b %d %H:%M:%S %Y")
    if seconds := fields.get("seconds") or fields.get("monotonic") or fields.get("unix"):
        return _after(float(seconds))
    return None


def _after(seconds: float) -> datetime | None:
    """Returns the time of these seconds since the boot, or of a Unix time, since `SINCE_BOOT` is 1970.
    Returns None if the number is no time: a damaged log may contain any number."""
    try:
        return SINCE_BOOT + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _without_year(month: str, day: str, clock: str) -> datetime | None:
    """Parses a time without a year. The time still orders the lines of one file."""
    number = month.rstrip("月월")
    if number not in _MONTHS and not number.isdecimal():
        return None
    in_year = int(number) if number.isdecimal() else _MONTHS.index(number) + 1
    return _parsed(f"{NO_YEAR} {in_year} {day} {clock}", "%Y %m %d %H:%M:%S")


def _parsed(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        return None


def _iso(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(_ZONE.sub("", text.replace(",", ".")))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _whole(lines: Iterable[SavedLine]) -> Iterator[SavedLine]:
    """Joins the lines of one record."""
    held: SavedLine | None = None
    parts = 0
    for line in lines:
        if held is not None and parts < _LINES_MAX and _goes_on(held, line):
            held = msgspec.structs.replace(held, text=f"{held.text}\n{line.text}")
            parts += 1
            continue
        if held is not None:
            yield held
        held, parts = (line, 1) if line.text.startswith(_GOES_ON) else (None, 0)
        if held is None and not line.is_indented:
            yield line
    if held is not None:
        yield held


def _goes_on(held: SavedLine, line: SavedLine) -> bool:
    is_one_record = line.is_indented or (line.time == held.time and "\n" not in line.text)
    return is_one_record and line.text.startswith(_GOES_ON_WITH) and not line.text.startswith(_IS_NEWS)
