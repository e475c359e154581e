"""The lines that the observer process sends to its bench: one line of JSON for each event that arrived."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

__all__ = ["GONE", "POKE", "READY", "Seen", "command"]

GONE = "gone"
"""The only fact of an object that was deleted."""
POKE = "rekindle.dev/bench-poke"
"""Annotation of the bench's namespace. The observer reports its value as a fact, so that the bench can
measure the observer's own delay."""
READY = "observer"
"""Kind of the line that reports that the observer has listed everything and watches it."""


class Seen(msgspec.Struct, frozen=True):
    """One object as an event showed it, and when the event arrived."""

    at_s: float
    """Time of arrival, by this machine's wall clock."""
    kind: str
    """Plural name of the kind, for example `pods`."""
    name: str = ""
    uid: str = ""
    facts: tuple[str, ...] = ()
    """Facts that benches look for, for example `ready`, `cordoned`, `closed` (by a taint NoSchedule), codes
    of findings, `suspended`, phases."""
    owner: str = ""
    node: str = ""
    size_bytes: int = 0


def command(access: Sequence[str]) -> list[str]:
    """Returns the observer's command line. `access` are the arguments that name the API server and the
    credentials."""
    return [sys.executable, "-m", "chaos.bench.observer", *access]
