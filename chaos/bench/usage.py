"""Reads memory and CPU time of a process and all its descendants from /proc. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

__all__ = ["Usage", "cpu_s", "family", "usage"]

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """Usage of a process and its living descendants together. The CPU time includes children that have
    ended."""

    pss_bytes: int
    """Proportional set size: a page that n processes share counts 1/n for each."""
    rss_bytes: int
    cpu_s: float
    """CPU seconds, in steps of the kernel's clock tick, mostly 0.01 s."""
    ended_children_cpu_s: float
    """Part of `cpu_s` that was used by children that have ended."""


class _Stat(msgspec.Struct, frozen=True):
    parent: int
    own_cpu_s: float
    ended_children_cpu_s: float


def usage(pid: int) -> Usage:
    """Returns the usage of the process and its descendants. Raises ProcessLookupError or FileNotFoundError if
    the process itself is gone."""
    pss_bytes, rss_bytes = _memory_bytes(pid)
    stats = [_stat(pid)]
    for child in family(pid) - {pid}:
        try:
            child_stat, (child_pss_bytes, child_rss_bytes) = _stat(child), _memory_bytes(child)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile, as disposable children do
        stats.append(child_stat)
        pss_bytes += child_pss_bytes
        rss_bytes += child_rss_bytes
    ended_s = sum(stat.ended_children_cpu_s for stat in stats)
    return Usage(pss_bytes, rss_bytes, sum(stat.own_cpu_s for stat in stats) + ended_s, ended_s)


def cpu_s(pid: int) -> float:
    """Returns the CPU time of all threads of this process alone, to the nanosecond if the kernel counts it.
    Raises the same errors as `usage`.

    Source: the kernel's Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat: its first field is the
    time on the CPU in nanoseconds. proc_pid_stat(5) knows clock ticks only.
    """
    times_ns = []
    for thread in (PROC / str(pid) / "task").iterdir():
        try:
            times_ns.append(int((thread / "schedstat").read_text(encoding="ascii").split()[0]))
        except (FileNotFoundError, ProcessLookupError):
            if not (PROC / str(pid) / "schedstat").exists():
                return _stat(pid).own_cpu_s
    return sum(times_ns) / 1e9


def family(pid: int) -> set[int]:
    """Returns the process and its living descendants."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = _stat(int(entry.name)).parent
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
    found: set[int] = set()
    new = {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found


def _stat(pid: int) -> _Stat:
    """Reads /proc/PID/stat. The command's name may contain spaces and parentheses, so the fields begin after
    the last parenthesis.

    Source: proc_pid_stat(5); fields 4 (parent) and 14 to 17 (own and waited-for children's CPU time).
    """
    fields = (
        (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    )
    utime, stime, cutime, cstime = map(int, fields[11:15])
    return _Stat(int(fields[1]), (utime + stime) / _TICKS_PER_S, (cutime + cstime) / _TICKS_PER_S)


def _memory_bytes(pid: int) -> tuple[int, int]:
    """Returns PSS and RSS in bytes."""
    kib = {}
    for line in (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, value, *_ = line.split()
        kib[name] = int(value)
    return kib["Pss:"] * 1024, kib["Rss:"] * 1024
