"""Measurements. Each bench reports its figures and the machine, and judges nothing.

In: arguments.
Out: rows of figures.
Touches: processes, files, a throwaway control plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from chaos.bench import checkpoints, footprint, gang, logs, loop
from chaos.bench.scale import command as scale_command

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
    "scale": scale_command,
}
