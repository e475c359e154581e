"""Records what a cluster puts on this machine, before it is made, and removes it.

The record is in the cluster's folder. A process that finds the record can remove everything, even if the
process that made it was killed: up.py at its end, down.py at any time. Processes are identified by id and
start time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

__all__ = ["FOLDER", "ClusterError", "Process", "Record", "cgroup_hierarchies", "remove_cgroup", "run"]

FOLDER = Path("/tmp/rekindle-cluster")
"""Folder of the only cluster: there is one at a time, because its addresses are fixed. The folder is neither
below /run nor below /var/lib, where a node sees its own files."""
GONE_S = 30.0
_LOOK_S = 0.05


class ClusterError(Exception):
    """The cluster cannot be brought up or taken down. The message says which step failed and why."""


class Process(msgspec.Struct, frozen=True):
    """A process that cannot be confused with a later process of the same id."""

    name: str
    pid: int
    started: int
    """Start time of the process, in clock ticks after the machine's boot."""

    @classmethod
    def of(cls, name: str, pid: int) -> Process:
        """Returns the running process with that id. Raises ClusterError if it has ended."""
        started = _started(pid)
        if started is None:
            raise ClusterError(f"{name} ended at once; see its log")
        return cls(name, pid, started)

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started

    def end(self, how: signal.Signals, limit_s: float = GONE_S) -> bool:
        """Sends the signal and waits. Returns whether the process is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
        return _within(limit_s, lambda: not self.alive)


class Record(msgspec.Struct):
    """Everything that stays behind when the cluster's keeper is killed. `links` and `cgroups` are removed
    newest first."""

    driver: Process
    processes: list[Process] = []
    links: list[str] = []
    cgroups: list[str] = []
    """Names of cgroup folders, the same in every hierarchy."""

    @classmethod
    def begin(cls) -> Record:
        """Claims the machine. Raises ClusterError if there is a cluster, or a remainder of one."""
        try:
            FOLDER.mkdir(mode=0o700)
        except FileExistsError:
            raise ClusterError(
                f"{FOLDER} exists: a cluster runs, or was left; `python -m tests.cluster.down` removes it"
            ) from None
        record = cls(Process.of("driver", os.getpid()))
        record._save()
        return record

    @classmethod
    def read(cls) -> Record | None:
        """Returns the record, or None if there is no cluster."""
        try:
            return msgspec.json.decode((FOLDER / "record.json").read_bytes(), type=cls)
        except FileNotFoundError:
            return None

    def note_process(self, name: str, pid: int) -> None:
        """Records a process after its start. The process dies with this one, so that none is lost in
        between."""
        self.processes = [p for p in self.processes if p.alive]
        self.processes.append(Process.of(name, pid))
        self._save()

    def process(self, name: str) -> Process | None:
        """Returns the last process with that name, or None."""
        return next((process for process in reversed(self.processes) if process.name == name), None)

    def note_link(self, name: str) -> None:
        if name not in self.links:
            self.links.append(name)
            self._save()

    def note_cgroup(self, name: str) -> None:
        if name not in self.cgroups:
            self.cgroups.append(name)
            self._save()

    def _save(self) -> None:
        new = FOLDER / "record.new"
        new.write_bytes(msgspec.json.encode(self))
        new.replace(FOLDER / "record.json")

    def remove(self) -> None:
        """Removes everything that is recorded, and the folder last. Raises ClusterError; then the call can be
        repeated."""
        for process in reversed(self.processes):
            if not process.end(signal.SIGKILL):
                raise ClusterError(f"{process.name} (process {process.pid}) does not end")
        for link in reversed(self.links):
            there = Path("/sys/class/net", link)
            if there.exists():
                # A node's link is removed with the node's network, perhaps at this moment.
                subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
            if not _within(GONE_S, partial(_is_absent, there)):
                raise ClusterError(f"the link {link} cannot be deleted")
        for name in reversed(self.cgroups):
            remove_cgroup(name)
        # The record goes last: if the process is killed before that, the record still names the rest.
        for path in FOLDER.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        shutil.rmtree(FOLDER)


def run(*command: str) -> str:
    """Runs the command and returns its output. Raises ClusterError with the command's error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def cgroup_hierarchies() -> list[Path]:
    """Returns the mount points of the cgroup hierarchies: one for each controller, or one for all."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    return [Path(row[1]) for row in rows if row[2] in {"cgroup", "cgroup2"}]


def remove_cgroup(name: str) -> None:
    """Removes the cgroup in every hierarchy, with everything below it. Raises ClusterError if its processes
    do not end."""
    for hierarchy in cgroup_hierarchies():
        top = hierarchy / name
        if not _within(GONE_S, partial(_is_removed, top)):
            raise ClusterError(f"the cgroup {top} cannot be removed: it still holds processes")


def _is_removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # busy: the kernel has not removed the last process yet
            Path(folder).rmdir()
    return _is_absent(top)


def _is_absent(path: Path) -> bool:
    return not path.exists()


def _started(pid: int) -> int | None:
    """Returns the start time of the process, or None if there is no such process, or only its exit status is
    left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _within(limit_s: float, is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True
