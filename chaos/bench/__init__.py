"""Measurements: each tells what it measured and on which machine, and judges nothing.

A bench is one module with `run(arguments) -> exit status` and what it is ABOUT, and one row of `BENCHES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from chaos.bench import checkpoints, footprint, gang, logs, loop

__all__ = ["BENCHES", "Bench"]


class Bench(Protocol):
    ABOUT: str

    def run(self, args: list[str], /) -> int: ...


BENCHES: Mapping[str, Bench] = {
    "checkpoints": checkpoints,
    "footprint": footprint,
    "gang": gang,
    "logs": logs,
    "loop": loop,
}
