"""The base of all acts: an act is drawn for a scene, and played in a simulation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Self

import msgspec

from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup

__all__ = ["Act", "OfJob", "OfNode", "OfRank", "Scene", "node_of_rank", "seconds", "wait_until_all_run"]

_STARTS_WITHIN_S = 300


class Scene(msgspec.Struct, frozen=True):
    """The cluster and the jobs of a script, for which its acts are drawn."""

    setup: Setup
    jobs: Sequence[Job]

    def node(self, draw: random.Random) -> str:
        return draw.choice(self.setup.names)

    def job(self, draw: random.Random) -> str:
        return draw.choice([job.key for job in self.jobs])

    def rank(self, draw: random.Random, job: str) -> int:
        return draw.randrange(next(one.ranks for one in self.jobs if one.key == job))


class Act(msgspec.Struct, frozen=True, tag_field="act", tag=True):
    """`at_s` is the time in seconds since the beginning. An act that finds no object to act on does
    nothing."""

    at_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        """Draws an act of this kind. A kind with further fields draws them here."""
        return cls(at_s)

    async def play(self, sim: Simulation) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        told = ", ".join(
            f"{name}={value}"
            for name in self.__struct_fields__
            if name != "at_s" and (value := getattr(self, name)) not in ("", None)
        )
        return f"{self.at_s:8.1f} s  {type(self).__name__}({told})"


class OfNode(Act, frozen=True):
    node: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw))


class OfJob(Act, frozen=True):
    job: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw))


class OfRank(Act, frozen=True):
    job: str
    rank: int

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        return cls(at_s, job, scene.rank(draw, job))


def node_of_rank(sim: Simulation, job: str, rank: int) -> str:
    """Returns the node of that rank, or an empty string if the rank has no node. `rank` counts the pods of
    the job in the order of their names."""
    pods = sim.pods(job)
    return str(pods[rank]["spec"].get("nodeName", "")) if rank < len(pods) else ""


async def wait_until_all_run(sim: Simulation, job: str) -> bool:
    """Waits until all ranks run. Returns False if they do not run in time."""
    ranks = sim.gangs[job].job.ranks
    for _ in range(_STARTS_WITHIN_S):
        if sim.ranks_running(job) == ranks:
            return True
        await asyncio.sleep(1.0)
    return False


def seconds(draw: random.Random, low: float, high: float) -> float:
    """Draws a number of seconds. It is rounded, because people read written scripts."""
    return round(draw.uniform(low, high), 1)
