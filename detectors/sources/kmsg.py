"""Follows the kernel's log: /dev/kmsg, or a regular file of the same records that takes its place.

A record is `prio,seq,usec,flags[,...];text`, then lines that start with a space (key=value). The text escapes
unprintable bytes as `\\xNN`. Only facility kern counts: all other records were written from user space.
Source: Linux, Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from detectors import rules
from detectors.rules.facts import KernelLine
from detectors.service.clocks import KernelClock
from detectors.sources.growing_file import GrowingFile
from detectors.sources.inotify import FolderWatch

__all__ = [
    "KERN",
    "KmsgSink",
    "Record",
    "follow",
    "kernel_line_of",
    "parse_record",
    "read_device",
    "records_now",
    "unescape",
]

_RECORD_BYTES_MAX = 16 * 1024  # the kernel's own limit of a record is 8 KiB; a shorter buffer is refused
_CHUNK_BYTES = 256 * 1024
_RECORDS_AT_ONCE = 1000
_MISSING_RETRY_S = 1.0
_DIGITS_MAX = 15
"""Number of digits; in microseconds this is 30 years, which is longer than any boot."""
KERN = 0
"""Facility of the kernel's own records. No program can write such a record: /dev/kmsg turns the facility into
`user`."""
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Record(msgspec.Struct, frozen=True):
    facility: int
    sequence: int
    usec: int
    text: str
    """The text, still escaped."""


class KmsgSink(Protocol):
    """Takes what is read. The sink derives the coverage of the source from these calls."""

    def line(self, line: KernelLine) -> None:
        """Takes a line of the kernel that a rule may read, unescaped."""

    def passed(self, sequence: int) -> None:
        """Takes note that all records up to this one have been read."""

    def lost(self, count: int, why: str) -> None: ...

    def bad(self, text: str) -> None:
        """Takes a line that is no record."""

    def restarted(self) -> int:
        """Takes note that the file was replaced or truncated; returns the sequence after which records are
        new."""

    def misplaced(self) -> None:
        """Takes note that the starting position was beyond the end of the log, so the whole log is read."""

    def covered(self) -> None: ...

    def caught_up(self) -> None:
        """Takes note that everything in the log has been read."""

    def blind(self, why: str) -> None: ...


def parse_record(data: bytes) -> Record | None:
    """Parses the first line of a record; returns None if it is not one."""
    head, semicolon, text = data.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 4 or len(head) > 256:
        return None
    numbers = fields[:3]
    if not all(number.isdigit() and len(number) <= _DIGITS_MAX for number in numbers):
        return None
    return Record(
        facility=int(numbers[0]) >> 3,
        sequence=int(numbers[1]),
        usec=int(numbers[2]),
        text=text.decode("utf-8", "replace"),
    )


def unescape(text: str) -> str:
    """Decodes the kernel's `\\xNN` escapes."""
    data = _ESCAPE.sub(lambda found: bytes([int(found.group(1), 16)]), text.encode("utf-8", "replace"))
    return data.decode("utf-8", "replace")


def kernel_line_of(record: Record, at: Callable[[int], datetime]) -> KernelLine | None:
    """Turns a record into a line for the rules. This is the only way from the kernel's log to the rules.
    Returns None if no rule reads the record, or if the record is not the kernel's. The record is one line,
    even if it contains newlines: only a head at its very beginning counts. `at` turns its microseconds into a
    time."""
    if record.facility != KERN or not rules.wants(record.text):
        return None
    return KernelLine(sequence=record.sequence, at=at(record.usec), text=unescape(record.text))


def records_now(path: Path) -> Iterator[Record]:
    """Yields the records that are in the log now, oldest first. Raises OSError."""
    lines = _of_device(path) if stat.S_ISCHR(path.stat().st_mode) else path.read_bytes().splitlines()
    for line in lines:
        if not line.startswith(b" ") and (record := parse_record(line)) is not None:
            yield record


def _of_device(path: Path) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                yield os.read(fd, _RECORD_BYTES_MAX).split(b"\n", 1)[0]
            except BrokenPipeError:
                continue  # overwritten while it was read: the next record is the oldest that is left
            except BlockingIOError:
                return
    finally:
        os.close(fd)


class MisplacedError(Exception):
    """Reading began at a position that the log has not reached."""


class _Reader:
    """Turns records into calls of the sink; keeps the sequence."""

    def __init__(self, sink: KmsgSink, after: int) -> None:
        self.after = after
        self._sink = sink
        self._newest = -1
        self._is_placed = after < 0

    def take(self, data: bytes, at: Callable[[int], datetime]) -> None:
        if not data or data.startswith(b" "):
            return
        record = parse_record(data)
        if record is None:
            self._sink.bad(data[:200].decode("utf-8", "replace"))
            return
        self._newest = max(self._newest, record.sequence)
        if record.sequence <= self.after:
            return
        if self.after >= 0 and record.sequence > self.after + 1:
            missing = record.sequence - self.after - 1
            self._sink.lost(missing, f"{missing} records lost before sequence {record.sequence}")
        self.after = record.sequence
        if (line := kernel_line_of(record, at)) is not None:
            self._sink.line(line)
        self._sink.passed(record.sequence)

    def caught_up(self) -> None:
        """Takes note that the whole log has been read. Raises MisplacedError if reading began beyond its end:
        then the position in the status belongs to another log, for example that of an earlier boot."""
        if not self._is_placed and 0 <= self._newest < self.after:
            self.after, self._newest = -1, -1
            raise MisplacedError
        self._is_placed = True
        self._sink.caught_up()


async def follow(path: Path, sink: KmsgSink, *, after: int) -> None:
    """Reads records with a sequence above `after`, until cancelled. If reading fails, tries again."""
    reader = _Reader(sink, after)
    while True:
        try:
            if _is_device(path):
                await _follow_device(path, reader, sink)
            else:
                await _follow_file(path, reader, sink)
        except MisplacedError:
            sink.misplaced()
            continue
        except OSError as error:
            sink.blind(f"{path}: {error.strerror or error}")
        await asyncio.sleep(_MISSING_RETRY_S)


def _is_device(path: Path) -> bool:
    return stat.S_ISCHR(path.stat().st_mode)


def read_device(read: Callable[[], bytes], sink: KmsgSink) -> Iterable[bytes]:
    """Yields the records that are ready now. After an overrun (EPIPE) reading continues with the oldest
    record that is left. For a record that could not be read it yields empty bytes, so that each read counts:
    the caller takes a batch that is not full for the end of the log."""
    for _ in range(_RECORDS_AT_ONCE):
        try:
            data = read()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EINVAL:
                sink.lost(1, f"a record is longer than {_RECORD_BYTES_MAX} bytes")
            elif error.errno != errno.EPIPE:  # for EPIPE the gap in the sequence shows how much is lost
                raise
            yield b""
            continue
        if not data:
            return
        yield data.split(b"\n", 1)[0]


async def _follow_device(path: Path, reader: _Reader, sink: KmsgSink) -> None:
    loop = asyncio.get_running_loop()
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    failed: asyncio.Future[None] = loop.create_future()
    clock = KernelClock()
    is_new = False

    def readable() -> None:
        nonlocal is_new
        # The offset is computed each time, since the wall clock may be set.
        now_s = time.monotonic()
        boot_s = time.time() - now_s
        count = 0
        try:
            for data in read_device(lambda: os.read(fd, _RECORD_BYTES_MAX), sink):
                if is_new and count == 0 and (record := parse_record(data)) is not None:
                    clock.just_showed(record.usec / 1e6, now_s)
                reader.take(
                    data, lambda usec: datetime.fromtimestamp(boot_s + clock.monotonic_s(usec / 1e6), UTC)
                )
                count += 1
            is_new = count < _RECORDS_AT_ONCE  # if all has been read, the next record wakes us when it comes
            if is_new:
                reader.caught_up()
        except (MisplacedError, OSError) as error:
            if not failed.done():
                failed.set_exception(error)

    loop.add_reader(fd, readable)
    sink.covered()
    readable()
    try:
        await failed
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def _follow_file(path: Path, reader: _Reader, sink: KmsgSink) -> None:
    changed = asyncio.Event()
    watch = FolderWatch()
    file = GrowingFile(path, line_bytes_max=_RECORD_BYTES_MAX)
    try:
        watch.add(path.parent, changed.set)  # the file may be replaced
        watch.add(path, changed.set)  # the file may be written under another name, for example as a mount
        with path.open("rb"):
            sink.covered()
        while True:
            changed.clear()
            await _read_all(file, reader, sink)
            reader.caught_up()
            await changed.wait()
    finally:
        file.close()
        watch.close()


async def _read_all(file: GrowingFile, reader: _Reader, sink: KmsgSink) -> None:
    while True:
        restarts, cut_lines = file.restarts, file.cut_lines
        lines = file.read(_CHUNK_BYTES)
        if file.restarts != restarts:
            reader.after = sink.restarted()
        if file.cut_lines != cut_lines:
            sink.lost(file.cut_lines - cut_lines, f"a record is longer than {_RECORD_BYTES_MAX} bytes")
        if not lines and not file.backlog_bytes():
            return
        _take_all(reader, lines, datetime.now(UTC))
        await asyncio.sleep(0)


def _take_all(reader: _Reader, lines: list[bytes], now: datetime) -> None:
    """Takes the lines of a file with the time of reading: the clock in the records may be that of another
    machine."""
    for line in lines:
        reader.take(line, lambda usec: now)
