"""Reads the node itself. When the agent starts, the source reads the crash records that survived the last
reboot. At an interval it takes a sample of the pressure of the node's work and the number of its processes.

All files are files of the kernel, in memory, or small files on the node's disk.
Sources: Linux, Documentation/ABI/testing/pstore and sysfs-class-watchdog; systemd-pstore(8), which moves the
records of pstore to /var/lib/systemd/pstore at a boot.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import structlog

from detectors.rules.boot_records import Boot, CrashRecord, crash_record
from detectors.rules.host_pressure import HostSample, pressure_of, threads_of
from detectors.service.settings import Host as Settings
from detectors.sources.small_files import text_of

__all__ = ["Host", "HostReader", "HostSink"]

_log = structlog.get_logger("host")

_FILES_MAX, _FILE_BYTES_MAX, _DEPTH_MAX = 64, 128 * 1024, 2
_SMALL_BYTES_MAX = 1024


class HostSink(Protocol):
    def booted(self, boot: Boot) -> None: ...

    def sampled(self, sample: HostSample) -> None: ...

    def covered(self, why: str) -> None: ...

    def blind(self, why: str) -> None: ...


class Host:
    def __init__(self, reader: HostReader, sink: HostSink, settings: Settings) -> None:
        self._reader = reader
        self._sink = sink
        self._settings = settings

    async def run(self) -> None:
        """Runs until cancelled."""
        if not self._settings.enabled:
            self._sink.blind("switched off by the setting host.enabled")
            return
        boot, unseen = self._reader.boot()
        if unseen:
            _log.info("crash records of the boot before are not seen", folders=unseen)
        self._sink.booted(boot)
        self._sink.covered(f"crash records are missing: {', '.join(unseen)}" if unseen else "")
        while True:
            self._sink.sampled(self._reader.sample())
            await asyncio.sleep(self._settings.every_s)


class HostReader:
    def __init__(self, host_root: Path, *, boot_id: str, proc: Path) -> None:
        """Takes the root of the node's files. `proc` is the folder from which pressure and processes are
        read. In the /proc of a container these files show the whole node, except `pid_max` since Linux
        6.14."""
        self._root = host_root
        self._boot_id = boot_id
        self._proc = str(proc)

    def sample(self) -> HostSample:
        """Returns a sample. Values that the kernel does not show are left out: PSI may be switched off."""
        shown = {name: _text(f"{self._proc}/pressure/{name}") for name in ("cpu", "io", "memory")}
        most = [_number(f"{self._proc}/sys/kernel/{name}") for name in ("threads-max", "pid_max")]
        return HostSample(
            {name: pressure_of(text) for name, text in shown.items() if text},
            threads_of(_text(f"{self._proc}/loadavg")),
            min((one for one in most if one is not None), default=None),
        )

    def boot(self) -> tuple[Boot, list[str]]:
        """Returns what is known about this boot, and the folders of crash records that do not exist here."""
        at = datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
        records: list[CrashRecord] = []
        unseen = []
        for folder in (self._root / "sys/fs/pstore", self._root / "var/lib/systemd/pstore"):
            if folder.is_dir():
                records += _records(folder)
            else:
                unseen.append(str(folder))
        watchdogs = tuple(_bootstatus(self._root / "sys/class/watchdog"))
        return Boot(self._boot_id, at, tuple(records), watchdogs), unseen


def _records(folder: Path) -> Iterator[CrashRecord]:
    """Yields the crash records of a folder. The newest files come first, since an archive keeps the records
    of many years."""
    dated = []
    for path in _files(folder, _DEPTH_MAX):
        try:
            dated.append((path.stat().st_mtime, path))
        except OSError:
            continue
    for modified_s, path in sorted(dated, reverse=True)[:_FILES_MAX]:
        try:
            with path.open("rb") as file:
                text = file.read(_FILE_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            continue
        record = crash_record(text, datetime.fromtimestamp(modified_s, UTC))
        if record is not None:
            yield record


def _files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False) and entry.name.startswith("dmesg"):
            yield Path(entry.path)
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), depth - 1)


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None


def _text(path: str) -> str:
    return text_of(path, _SMALL_BYTES_MAX)


def _bootstatus(folder: Path) -> Iterator[int]:
    """Yields the boot status of each watchdog. Many watchdogs have no such file, and yield nothing."""
    for path in sorted(folder.glob("*/bootstatus")):
        try:
            yield int(path.read_text(encoding="ascii").strip(), 0)
        except (OSError, ValueError):
            continue
