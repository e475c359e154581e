"""Acts that strike one gang several times, each time after the gang has come back: nodes that break one after
another, and a program that crashes after each checkpoint."""

from __future__ import annotations

import asyncio
import random
from typing import Self

from chaos.cluster.containers import Exit
from chaos.simulate.acts.base import Act, Scene, node_of_rank, wait_until_all_run
from chaos.simulate.world import Simulation
from chaos.simulated.lines import BY_NAME, FATAL

__all__ = ["AnySeries", "CrashesAfterCheckpoints", "NodesInARow"]

_BEFORE_A_STEP_S = 5.0
"""Seconds after the start at which all ranks run and none has made a step yet."""
_LEAVES_WITHIN_S = 60
"""Seconds within which the gang must leave the broken node."""
_SAVES_WITHIN_S = 600


class NodesInARow(Act, frozen=True):
    """The node of a rank breaks. Each node to which the gang then moves breaks too, before the gang has made
    a step there."""

    job: str
    ranks: tuple[int, ...]
    line: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        ranks = tuple(scene.rank(draw, job) for _ in range(draw.randint(2, 6)))
        return cls(at_s, job, ranks, draw.choice(FATAL))

    async def play(self, sim: Simulation) -> None:
        for rank in self.ranks:
            if not await wait_until_all_run(sim, self.job):
                return
            await asyncio.sleep(_BEFORE_A_STEP_S)
            sim.kernel(node_of_rank(sim, self.job, rank), BY_NAME[self.line])
            for _ in range(_LEAVES_WITHIN_S):
                if sim.ranks_running(self.job) == 0:
                    break
                await asyncio.sleep(1.0)


class CrashesAfterCheckpoints(Act, frozen=True):
    """A rank crashes with the same words again and again, each time soon after the gang has completed another
    checkpoint."""

    job: str
    rank: int
    times: int
    after_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        return cls(at_s, job, scene.rank(draw, job), draw.randint(3, 5), draw.choice([2.0, 25.0]))

    async def play(self, sim: Simulation) -> None:
        checkpoints = sim.gangs[self.job].training.checkpoints
        for _ in range(self.times):
            before = checkpoints.newest
            for _ in range(_SAVES_WITHIN_S):
                if checkpoints.newest > before and sim.ranks_running(self.job):
                    break
                await asyncio.sleep(1.0)
            else:
                return
            await asyncio.sleep(self.after_s)
            sim.crash_rank(self.rank, Exit(1), self.job, says="ValueError: a bad batch of data")


AnySeries = NodesInARow | CrashesAfterCheckpoints
