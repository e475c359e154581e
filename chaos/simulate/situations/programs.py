"""Situations in which programs crash: with progress in between, with a checkpoint that does not load, or on
nodes without an agent."""

from __future__ import annotations

import random

from chaos.simulate.acts.base import seconds
from chaos.simulate.acts.faults import (
    CheckpointDamage,
    RankCrash,
)
from chaos.simulate.acts.series import CrashesAfterCheckpoints
from chaos.simulate.script import Script
from chaos.simulate.situations.parts import (
    acting,
    begins_s,
    rank_of,
    scanned,
    set_up,
)
from chaos.simulated.jobs import DEVICES_ISSUE

__all__ = [
    "checkpoint_does_not_load",
    "crash_nobody_watched",
    "crashes_with_progress",
]

_SAVED_S = 260.0
"""Seconds after the beginning at which a gang with steps of 10 s has completed two checkpoints."""


def crashes_with_progress(script: Script, draw: random.Random) -> Script:
    """A program crashes repeatedly, and makes progress in between."""
    after_s = draw.choice([2.0, 25.0])
    series = CrashesAfterCheckpoints(
        begins_s(draw), script.jobs[0].key, rank_of(script, draw), draw.randint(4, 5), after_s
    )
    return acting(script, series)


def checkpoint_does_not_load(script: Script, draw: random.Random) -> Script:
    """The newest checkpoint looks complete and does not load, and the gang has to start from a checkpoint."""
    script = scanned(script)
    key, at_s = script.jobs[0].key, _SAVED_S + seconds(draw, 0, 60)
    return acting(
        script,
        CheckpointDamage(at_s, key, "damaged"),
        RankCrash(at_s + seconds(draw, 0.1, 5), key, rank_of(script, draw), "exit-1", ""),
    )


def crash_nobody_watched(script: Script, draw: random.Random) -> Script:
    """A rank crashes where no agent runs, or its last words name a device that failed under it."""
    says, names = draw.choice(["", DEVICES_ISSUE, DEVICES_ISSUE]), script.setup.names
    if not says or draw.random() < 0.3:
        without = tuple(names) if draw.random() < 0.5 else tuple(draw.sample(names, len(names) // 2))
        script = set_up(script, without_agent=without)
    acts = [
        RankCrash(at_s, script.jobs[0].key, rank_of(script, draw), draw.choice(["exit-1", "abort"]), says)
        for at_s in (begins_s(draw), begins_s(draw) + seconds(draw, 100, 300))
    ]
    return acting(script, *acts[: draw.randint(1, 2)])
