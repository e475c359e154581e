"""What the observer process tells its bench: one line of JSON for each event that arrived."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

__all__ = ["GONE", "POKE", "READY", "Seen", "command"]

GONE = "gone"
"""The only fact of an object that was deleted."""
POKE = "rekindle.dev/bench-poke"
"""An annotation of a namespace whose value is a fact: so the observer's own delay is measured."""
READY = "observer"
"""The kind of the line that tells that all has been listed and is watched."""


class Seen(msgspec.Struct, frozen=True):
    """One object, as the event told it that arrived then."""

    at_s: float
    """By this machine's wall clock."""
    kind: str
    """The plural, as `pods`."""
    name: str = ""
    uid: str = ""
    facts: tuple[str, ...] = ()
    """What benches ask about: `ready`, `cordoned`, `closed`, codes of findings, `suspended`, phases."""
    owner: str = ""
    node: str = ""
    size_bytes: int = 0


def command(access: Sequence[str]) -> list[str]:
    """`access`: the arguments that say which API server, and as whom."""
    return [sys.executable, "-m", "chaos.bench.observer", *access]
