"""Draws the faults and their times from a seed. Pure: the same seed draws the same faults."""

from __future__ import annotations

from enum import StrEnum
from random import Random

import msgspec

__all__ = ["INDEX", "Kind", "Strike", "drawn"]

INDEX = -1
"""Value of `Strike.file` if the index of a save, which is written last, finds no room, and not a rank's
shard."""


class Kind(StrEnum):
    KILL_POD = "SIGKILL of a pod's processes"
    KILL_RANK = "SIGKILL of a rank below torchrun"
    FREEZE = "SIGSTOP of a rank"
    DISK_FULL = "disk full in a save"


_WEIGHTS = {Kind.KILL_POD: 3, Kind.KILL_RANK: 3, Kind.FREEZE: 3, Kind.DISK_FULL: 2}


class Strike(msgspec.Struct, frozen=True):
    """The fault strikes `wait_s` after the last recovery's first new step. With `saving` it then strikes in
    the next save, when `share` of the save's time has passed. `file` is the rank whose shard finds no room,
    or INDEX."""

    kind: Kind
    rank: int
    wait_s: float
    saving: bool = False
    share: float = 0.0
    file: int = INDEX


def drawn(seed: int, number: int, *, ranks: int, wait_max_s: float) -> Strike:
    """Returns the fault with that number. All faults of a full disk strike in a save, and a third of the
    others."""
    random = Random(f"{seed}/{number}")
    (kind,) = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    return Strike(
        kind=kind,
        rank=random.randrange(ranks),
        wait_s=random.uniform(0.0, wait_max_s),
        saving=kind is Kind.DISK_FULL or random.random() < 1 / 3,
        share=random.uniform(0.0, 1.0),
        file=random.choice([INDEX, *range(ranks)]),
    )
