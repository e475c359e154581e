"""Acts by which hardware, machines, agents and programs fail."""

from __future__ import annotations

import asyncio
import random
from typing import Self

from chaos.cluster.containers import Exit
from chaos.simulate.acts.base import Act, OfNode, OfRank, Scene, node_of_rank, seconds, wait_until_all_run
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import OWNERS_ISSUE
from chaos.simulated.lines import BY_NAME, FATAL, WEAK

__all__ = [
    "AgentLoss",
    "AgentRestart",
    "AnyFault",
    "BootAll",
    "CheckpointDamage",
    "CrashesInARow",
    "Join",
    "KernelLine",
    "LateEvidence",
    "LineOfRank",
    "LinesEverywhere",
    "MassFault",
    "NodeDeath",
    "NodeOfRankDeath",
    "ProgramChange",
    "RankCrash",
    "RankHang",
    "Reboot",
    "Worsening",
]

_TENANT = ("mmu-fault", "preemptive-removal")
_ENDS = {
    "exit-1": Exit(1),
    "out-of-memory": Exit.out_of_memory(),
    "abort": Exit.by_signal(6),
    "segmentation-fault": Exit.by_signal(11),
}
LAST_WORDS = (
    "",
    "",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    OWNERS_ISSUE,
)
"""Last words of a rank that crashes: none, no known issue, an issue that a move to another node may resolve,
and an issue that only the owner of the job can fix."""
_BEFORE_A_STEP_S = 5.0
"""Seconds after the start at which all ranks run and none has made a step yet."""


class KernelLine(Act, frozen=True):
    node: str
    line: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw), draw.choice(tuple(BY_NAME)))

    async def play(self, sim: Simulation) -> None:
        sim.kernel(self.node, BY_NAME[self.line])


class LineOfRank(Act, frozen=True):
    """A kernel line on the node where that rank runs at that time."""

    job: str
    rank: int
    line: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        line = draw.choice([*FATAL, *WEAK]) if draw.random() < 0.8 else draw.choice(tuple(BY_NAME))
        return cls(at_s, job, scene.rank(draw, job), line)

    async def play(self, sim: Simulation) -> None:
        sim.kernel(node_of_rank(sim, self.job, self.rank), BY_NAME[self.line])


class Worsening(Act, frozen=True):
    """A weak sign, then a fatal one, on the node of a rank."""

    job: str
    rank: int
    first: str
    then: str
    after_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        after_s = draw.choice([0.5, seconds(draw, 3, 60), seconds(draw, 60, 600)])
        return cls(at_s, job, scene.rank(draw, job), draw.choice(WEAK), draw.choice(FATAL), after_s)

    async def play(self, sim: Simulation) -> None:
        node = node_of_rank(sim, self.job, self.rank)
        sim.kernel(node, BY_NAME[self.first])
        await asyncio.sleep(self.after_s)
        sim.kernel(node, BY_NAME[self.then])


class LinesEverywhere(Act, frozen=True):
    """A crash as CUDA programs show it: one rank dies, and every node of the cluster logs a line."""

    job: str
    rank: int
    line: str
    says: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        return cls(at_s, job, scene.rank(draw, job), draw.choice(_TENANT), draw.choice(LAST_WORDS))

    async def play(self, sim: Simulation) -> None:
        for node in tuple(sim.machines):
            sim.kernel(node, BY_NAME[self.line])
        sim.crash_rank(self.rank, Exit(1), self.job, says=self.says)


class MassFault(Act, frozen=True):
    """The same line on many nodes within a short time, as when a switch or a driver update breaks."""

    nodes: tuple[str, ...]
    line: str
    every_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        count = draw.randint(min(4, scene.setup.nodes), min(12, scene.setup.nodes))
        nodes = tuple(draw.sample(scene.setup.names, count))
        return cls(at_s, nodes, draw.choice([*FATAL, *WEAK]), draw.choice([0.0, 0.5, 10.0]))

    async def play(self, sim: Simulation) -> None:
        for node in self.nodes:
            sim.kernel(node, BY_NAME[self.line])
            await asyncio.sleep(self.every_s)


class RankCrash(Act, frozen=True):
    job: str
    rank: int
    end: str
    says: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        return cls(at_s, job, scene.rank(draw, job), draw.choice(tuple(_ENDS)), draw.choice(LAST_WORDS))

    async def play(self, sim: Simulation) -> None:
        sim.crash_rank(self.rank, _ENDS[self.end], self.job, says=self.says)


class CrashesInARow(Act, frozen=True):
    """A rank ends again and again, each time soon after all ranks have started."""

    job: str
    rank: int
    ends: tuple[str, ...]
    says: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        kinds = draw.choices(tuple(_ENDS), k=draw.choice([1, 2]))
        ends = tuple(draw.choices(kinds, k=draw.randint(2, 6)))
        return cls(at_s, job, scene.rank(draw, job), ends, draw.choice(LAST_WORDS))

    async def play(self, sim: Simulation) -> None:
        for end in self.ends:
            if not await wait_until_all_run(sim, self.job):
                return
            await asyncio.sleep(_BEFORE_A_STEP_S)
            sim.crash_rank(self.rank, _ENDS[end], self.job, says=self.says)
            await asyncio.sleep(_BEFORE_A_STEP_S)


class RankHang(OfRank, frozen=True):
    async def play(self, sim: Simulation) -> None:
        sim.hang_rank(self.rank, self.job)


class NodeDeath(OfNode, frozen=True):
    """A machine loses power."""

    async def play(self, sim: Simulation) -> None:
        if self.node in sim.machines:
            await sim.crash_node(self.node)


class NodeOfRankDeath(OfRank, frozen=True):
    async def play(self, sim: Simulation) -> None:
        node = node_of_rank(sim, self.job, self.rank)
        if node in sim.machines:
            await sim.crash_node(node)


class Reboot(Act, frozen=True):
    """A node goes down and comes back by itself."""

    node: str
    down_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw), draw.choice([seconds(draw, 1, 30), seconds(draw, 60, 600)]))

    async def play(self, sim: Simulation) -> None:
        if self.node not in sim.machines:
            return
        await sim.crash_node(self.node)
        await asyncio.sleep(self.down_s)
        if self.node in sim.dead_nodes():
            await sim.boot_node(self.node)


class BootAll(Act, frozen=True):
    """Every machine that is off, and whose Node exists, boots."""

    async def play(self, sim: Simulation) -> None:
        for node in sorted(sim.dead_nodes()):
            await sim.boot_node(node)


class Join(Act, frozen=True):
    """A new node joins the cluster."""

    node: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(
            at_s, draw.choice([*scene.setup.joining, *scene.setup.names][: len(scene.setup.joining) or 1])
        )

    async def play(self, sim: Simulation) -> None:
        if self.node in sim.setup.joining and self.node not in sim.machines:
            await sim.boot_node(self.node)


class LateEvidence(Act, frozen=True):
    """A node breaks while its agent is away, and the gang fails because of the rank on another node."""

    job: str
    line: str
    end: str
    after_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        after_s = draw.choice([1.0, 10.0, 40.0])
        return cls(at_s, scene.job(draw), draw.choice(FATAL), draw.choice(["exit-1", "abort"]), after_s)

    async def play(self, sim: Simulation) -> None:
        node = node_of_rank(sim, self.job, 0)
        if node not in sim.machines:
            return
        sim.kill_agent(node)
        sim.kernel(node, BY_NAME[self.line])
        sim.crash_rank(1, _ENDS[self.end], self.job)
        await asyncio.sleep(self.after_s)
        if node in sim.machines and node not in sim.agents:
            sim.start_agent(node)


class AgentRestart(Act, frozen=True):
    node: str
    away_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw), seconds(draw, 0, 30))

    async def play(self, sim: Simulation) -> None:
        sim.kill_agent(self.node)
        await asyncio.sleep(self.away_s)
        if self.node in sim.machines and self.node not in sim.agents:
            sim.start_agent(self.node)


class AgentLoss(OfNode, frozen=True):
    """The node's agent ends, and no agent is started there again."""

    async def play(self, sim: Simulation) -> None:
        sim.without_agent.add(self.node)
        sim.kill_agent(self.node)


class ProgramChange(Act, frozen=True):
    """The gang crashes or prints no step from its next start on, until the faults end."""

    job: str
    how: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), draw.choice(["silent", "crashes"]))

    async def play(self, sim: Simulation) -> None:
        gang = sim.gangs[self.job]
        gang.silent, gang.crashes_at_start = self.how == "silent", self.how == "crashes"


class CheckpointDamage(Act, frozen=True):
    """Damages the newest complete checkpoint: its end is missing, or it looks complete and does not load."""

    job: str
    how: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), draw.choice(["incomplete", "damaged"]))

    async def play(self, sim: Simulation) -> None:
        checkpoints = sim.gangs[self.job].training.checkpoints
        if checkpoints.newest and self.how == "damaged":
            checkpoints.damaged.add(checkpoints.newest)
        elif checkpoints.newest:
            checkpoints.complete[checkpoints.newest] = False


AnyFault = (
    KernelLine
    | LineOfRank
    | Worsening
    | LinesEverywhere
    | MassFault
    | RankCrash
    | CrashesInARow
    | RankHang
    | NodeDeath
    | NodeOfRankDeath
    | Reboot
    | BootAll
    | Join
    | LateEvidence
    | AgentRestart
    | AgentLoss
    | ProgramChange
    | CheckpointDamage
)
