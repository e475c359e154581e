"""Acts that disturb the traffic between the API server and the controller, the agents or the scheduler, and
acts that kill the controller."""

from __future__ import annotations

import asyncio
import random
from typing import Self

from chaos.apiserver.disturbance import StandingRefusal
from chaos.apiserver.kinds import KINDS
from chaos.cluster.containers import Exit
from chaos.simulate.acts.base import Act, OfRank, Scene, node_of_rank, seconds
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import OTHER_NAMESPACE
from chaos.simulated.lines import BY_NAME, FATAL
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, JOBS, NODEHEALTHS, NODES, PODS, PYTORCHJOBS, RECOVERIES

__all__ = [
    "AgentsCutOff",
    "AnyTrouble",
    "ControllerDeath",
    "DroppedWatches",
    "JobWebhook",
    "LateScheduler",
    "LostReplies",
    "NamespaceEnd",
    "NodeWebhook",
    "Partition",
    "RecoveryQuota",
    "Refusals",
    "SlowServer",
    "WatchLag",
]

_LAGGING = (NODES, PODS, NODEHEALTHS, INCIDENTS, RECOVERIES, JOBS, PYTORCHJOBS)


class ControllerDeath(Act, frozen=True):
    """The controller dies at one of its next writes, before the write is sent or after it was applied.
    `places` counts these two places of each write (simulated/crashing.py)."""

    places: int
    down_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, draw.randint(1, 8), seconds(draw, 0, 60))

    async def play(self, sim: Simulation) -> None:
        sim.crashes.crash_in, sim.crashes.down_s = self.places, self.down_s


class LostReplies(Act, frozen=True):
    count: int

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, draw.randint(1, 4))

    async def play(self, sim: Simulation) -> None:
        sim.client.disturbance.lose_replies = self.count


class DroppedWatches(Act, frozen=True):
    async def play(self, sim: Simulation) -> None:
        sim.client.disturbance.drop_watches()


class Refusals(Act, frozen=True):
    """The API server refuses the next requests, whatever they are."""

    statuses: tuple[int, ...]

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, tuple(draw.choices([409, 429, 500, 503], k=draw.randint(1, 8))))

    async def play(self, sim: Simulation) -> None:
        sim.client.disturbance.refuse_with.extend(self.statuses)


class WatchLag(Act, frozen=True):
    """Watches of one kind, or of all kinds, lag from now on."""

    kind: str
    lag_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        if draw.random() < 0.3:
            return cls(at_s, "", draw.choice([0.0, 0.5, 3.0]))
        return cls(at_s, draw.choice(_LAGGING).plural, draw.choice([0.0, 1.0, 5.0, 30.0]))

    async def play(self, sim: Simulation) -> None:
        if not self.kind:
            sim.client.disturbance.watch_lag_s = self.lag_s
        for resource in KINDS:
            if resource.plural == self.kind:
                sim.client.disturbance.lag_of_s[resource] = self.lag_s


class SlowServer(Act, frozen=True):
    delay_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, draw.choice([0.005, 0.5, 3.0]))

    async def play(self, sim: Simulation) -> None:
        sim.client.disturbance.delay_s = self.delay_s


class AgentsCutOff(Act, frozen=True):
    """The API server refuses the next requests of the agents of some nodes, with `statuses`. It then applies
    the next `lost` writes of each of these agents, and the replies are lost."""

    nodes: tuple[str, ...]
    lost: int
    statuses: tuple[int, ...]

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        nodes = draw.sample(scene.setup.names, k=min(3, scene.setup.nodes))
        return cls(
            at_s, tuple(nodes), draw.randint(1, 3), tuple(draw.choices([429, 500], k=draw.randint(0, 3)))
        )

    async def play(self, sim: Simulation) -> None:
        for node in self.nodes:
            troubles = sim.cluster.client(f"agent:{node}").disturbance
            troubles.lose_replies = self.lost
            troubles.refuse_with.extend(self.statuses)


class Partition(Act, frozen=True):
    """The controller does not reach the API server for a while."""

    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, seconds(draw, 1, 60))

    async def play(self, sim: Simulation) -> None:
        sim.client.disturbance.partition()
        await asyncio.sleep(self.for_s)
        sim.client.disturbance.heal()


class LateScheduler(Act, frozen=True):
    """The scheduler sees the nodes as they are now, for a while: after an outage of the API server its watch
    of the nodes may lag."""

    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, seconds(draw, 1, 60))

    async def play(self, sim: Simulation) -> None:
        sim.cluster.scheduler.nodes_stand_still()
        await asyncio.sleep(self.for_s)
        sim.cluster.scheduler.nodes_go_on()


class NodeWebhook(Act, frozen=True):
    """An admission webhook denies the controller's patches of the node of a rank, until the faults end, and
    that node breaks."""

    job: str
    rank: int
    status: int
    line: str

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        job = scene.job(draw)
        return cls(at_s, job, scene.rank(draw, job), draw.choice([403, 500]), draw.choice(FATAL))

    async def play(self, sim: Simulation) -> None:
        node = node_of_rank(sim, self.job, self.rank)
        if not node:
            return
        why = "admission webhook denied the patch of a node"
        _stands(sim, StandingRefusal(why=why, verb="patch", resource=NODES, name=node, status=self.status))
        sim.kernel(node, BY_NAME[self.line])


class JobWebhook(Act, frozen=True):
    """An admission webhook denies the controller's patches of one job for a while."""

    job: str
    status: int
    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), draw.choice([403, 500]), seconds(draw, 20, 200))

    async def play(self, sim: Simulation) -> None:
        job, resource = sim.gangs[self.job].job, sim.resource(self.job)
        refusal = StandingRefusal(
            why="admission webhook denied the patch of a job",
            verb="patch",
            resource=resource,
            name=job.name,
            namespace=job.namespace,
            status=self.status,
        )
        _stands(sim, refusal)
        await asyncio.sleep(self.for_s)
        if refusal in sim.client.disturbance.standing:
            sim.client.disturbance.standing.remove(refusal)


class RecoveryQuota(OfRank, frozen=True):
    """A quota prevents any further Recovery of one job, until the faults end, and a rank of the job
    crashes."""

    async def play(self, sim: Simulation) -> None:
        job = sim.gangs[self.job].job
        refusal = StandingRefusal(
            why="exceeded quota: count/recoveries.rekindle.dev",
            verb="create",
            resource=RECOVERIES,
            name=f"{job.kind.value}-{job.name}",
            namespace=job.namespace,
        )
        _stands(sim, refusal)
        sim.crash_rank(self.rank, Exit(1), self.job)


class NamespaceEnd(Act, frozen=True):
    """One namespace is being deleted: nothing new can be created in it, and its jobs are deleted."""

    async def play(self, sim: Simulation) -> None:
        why = "unable to create new content in namespace: it is being terminated"
        for resource in (RECOVERIES, CONFIGMAPS, PODS):
            refusal = StandingRefusal(why=why, verb="create", resource=resource, namespace=OTHER_NAMESPACE)
            _stands(sim, refusal)
        await asyncio.sleep(30.0)
        for key, gang in sim.gangs.items():
            if gang.job.namespace == OTHER_NAMESPACE:
                await sim.person.delete_job(key)


def _stands(sim: Simulation, refusal: StandingRefusal) -> None:
    if refusal not in sim.client.disturbance.standing:
        sim.client.disturbance.standing.append(refusal)


AnyTrouble = (
    ControllerDeath
    | LostReplies
    | DroppedWatches
    | Refusals
    | WatchLag
    | SlowServer
    | AgentsCutOff
    | Partition
    | LateScheduler
    | NodeWebhook
    | JobWebhook
    | RecoveryQuota
    | NamespaceEnd
)
