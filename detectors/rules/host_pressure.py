"""Judges one sample of the node's pressure and processes. The samples come from sources/host.py;
folds/host.py makes findings from the states. Pure.

For each code a sample shows that the node is in the state, that the state has clearly ended, or neither. A
state begins above its limit. It ends at half of the limit for pressure, and at nine tenths of the limit for
counts such as `pids-short`; in between the state stays as it was. A value that the kernel does not show is no
data.
Sources: Linux, Documentation/accounting/psi.rst; fs/proc/loadavg.c (all threads of the node, from any
namespace); proc(5), threads-max and pid_max.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from detectors.rules.host_state_rows import PIDS_SHORT, PRESSURE_CPU, PRESSURE_IO, PRESSURE_MEMORY
from detectors.service.settings import Host as Settings

__all__ = ["HostSample", "Pressure", "State", "host_states", "pressure_of", "threads_of"]

_LINE = re.compile(
    r"(?P<kind>some|full) avg10=[0-9]{1,3}\.[0-9]{1,4} avg60=[0-9]{1,3}\.[0-9]{1,4} "
    r"avg300=(?P<avg300>[0-9]{1,3}\.[0-9]{1,4}) total=[0-9]{1,20}"
)
_LOADAVG = re.compile(r"[0-9. ]{5,60} [0-9]{1,10}/(?P<threads>[0-9]{1,10}) [0-9]{1,10}")


class Pressure(msgspec.Struct, frozen=True):
    """Percentage of the last five minutes in which some, or all, work waited."""

    some: float | None = None
    full: float | None = None


class HostSample(msgspec.Struct, frozen=True):
    """One sample of the node. Values that could not be read are missing or None."""

    pressure: Mapping[str, Pressure] = {}
    """Pressure by `cpu`, `io`, `memory`."""
    threads: int | None = None
    threads_max: int | None = None


class State(msgspec.Struct, frozen=True):
    code: str
    text: str = ""
    """The evidence; empty if the node is clearly not in the state."""


def pressure_of(text: str) -> Pressure:
    """Parses a file of /proc/pressure."""
    found = {m["kind"]: float(m["avg300"]) for line in text.splitlines() if (m := _LINE.fullmatch(line))}
    return Pressure(found.get("some"), found.get("full"))


def threads_of(text: str) -> int | None:
    """Parses /proc/loadavg; returns the number of threads, or None if the text has another form."""
    found = _LOADAVG.fullmatch(text.strip())
    return int(found["threads"]) if found is not None else None


def host_states(sample: HostSample, limits: Settings) -> Iterator[State]:
    waits = {name: sample.pressure.get(name, Pressure()) for name in ("cpu", "io", "memory")}
    for code, value, limit, what in (
        (PRESSURE_MEMORY, waits["memory"].full, limits.memory_percent, "all work waited for memory"),
        (PRESSURE_IO, waits["io"].full, limits.io_percent, "all work waited for disks or file servers"),
        (PRESSURE_CPU, waits["cpu"].some, limits.cpu_percent, "some work waited for a processor"),
    ):
        if value is not None and value > limit:
            yield State(code, f"in {value:.0f} % of the last five minutes {what}")
        elif value is not None and value <= limit / 2:
            yield State(code)
    if sample.threads is not None and sample.threads_max:
        share = 100 * sample.threads / sample.threads_max
        if share > limits.pids_percent:
            used = f"{sample.threads} of {sample.threads_max} processes and threads are in use"
            yield State(PIDS_SHORT, used)
        elif share <= 0.9 * limits.pids_percent:
            yield State(PIDS_SHORT)
