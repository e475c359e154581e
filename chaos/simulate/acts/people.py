"""Acts of people, at any time: they cordon, uncordon, fence, hold, suspend and delete."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Self

import msgspec

from chaos.simulate.acts.base import Act, OfJob, Scene, seconds
from chaos.simulate.world import Simulation
from detectors.client.kubeapi import ApiError
from recover.model.modes import Mode

__all__ = [
    "AnyDeed",
    "Cordon",
    "Disagreement",
    "Fencing",
    "Hold",
    "JobDeletion",
    "NodeHold",
    "NodeRemoval",
    "Pause",
    "Promotion",
    "SpareChange",
    "StartAgain",
    "Suspension",
    "Uncordon",
]


_LOOK_S = 0.2
_STOPS_WITHIN_LOOKS = 1000


class Uncordon(Act, frozen=True):
    """A person uncordons all nodes."""

    async def play(self, sim: Simulation) -> None:
        for node in sim.cordoned():
            await sim.person.uncordon(node)


class Cordon(Act, frozen=True):
    node: str
    for_s: float
    """Seconds until a person uncordons the node. 0: the node stays cordoned."""

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw), draw.choice([0.0, seconds(draw, 10, 300)]))

    async def play(self, sim: Simulation) -> None:
        try:
            await sim.person.cordon(self.node)
            if self.for_s:
                await asyncio.sleep(self.for_s)
                await sim.person.uncordon(self.node)
        except ApiError:  # the node does not exist
            return


class Suspension(Act, frozen=True):
    """A person suspends a job for a while."""

    job: str
    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), seconds(draw, 1, 60))

    async def play(self, sim: Simulation) -> None:
        sim.truth.decided_by_people.add(self.job)
        await sim.person.suspend(self.job, True)
        await asyncio.sleep(self.for_s)
        await sim.person.suspend(self.job, False)


class Hold(Act, frozen=True):
    """A person holds a job for a while."""

    job: str
    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), seconds(draw, 1, 60))

    async def play(self, sim: Simulation) -> None:
        for value in ("true", None):
            await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": value}}}, self.job)
            await asyncio.sleep(self.for_s if value else 0.0)


class NodeHold(Act, frozen=True):
    """A person holds a node for a while."""

    node: str
    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw), seconds(draw, 1, 200))

    async def play(self, sim: Simulation) -> None:
        try:
            for value in ("true", None):
                hold = {"metadata": {"annotations": {"rekindle.dev/hold": value}}}
                await sim.person.edit_node(self.node, hold)
                await asyncio.sleep(self.for_s if value else 0.0)
        except ApiError:  # the node does not exist
            return


class JobDeletion(OfJob, frozen=True):
    async def play(self, sim: Simulation) -> None:
        await sim.person.delete_job(self.job)


class Disagreement(Act, frozen=True):
    """A person deletes a running Recovery, and resumes the job if it was stopped."""

    job: str
    after_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), seconds(draw, 0, 30))

    async def play(self, sim: Simulation) -> None:
        sim.truth.decided_by_people.add(self.job)
        await sim.person.delete_recoveries(self.job)
        await asyncio.sleep(self.after_s)
        await sim.person.suspend(self.job, False)


class StartAgain(Act, frozen=True):
    """A person starts a job again as soon as the controller has stopped it."""

    job: str
    after_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.job(draw), seconds(draw, 0, 3))

    async def play(self, sim: Simulation) -> None:
        for _ in range(_STOPS_WITHIN_LOOKS):
            if sim.is_suspended(self.job):
                break
            await asyncio.sleep(_LOOK_S)
        else:
            return
        await asyncio.sleep(self.after_s)
        sim.truth.decided_by_people.add(self.job)
        await sim.person.suspend(self.job, False)


class Fencing(Act, frozen=True):
    """A person puts the out-of-service taint on every dead node."""

    async def play(self, sim: Simulation) -> None:
        for node in sorted(sim.dead_nodes()):
            await sim.person.out_of_service(node)


class NodeRemoval(Act, frozen=True):
    """A person deletes the Node objects of machines that are off."""

    async def play(self, sim: Simulation) -> None:
        for node in sorted(sim.dead_nodes()):
            await sim.person.remove_node(node)


class SpareChange(Act, frozen=True):
    """A person makes a node a spare, or removes the spare: by its taint, or by its label."""

    node: str
    how: str
    is_spare: bool

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, scene.node(draw), draw.choice(["taint", "label"]), draw.random() < 0.5)

    async def play(self, sim: Simulation) -> None:
        change = sim.person.taint_spare if self.how == "taint" else sim.person.label_spare
        await change(self.node, is_spare=self.is_spare)


class Promotion(Act, frozen=True):
    """A person raises the mode from observe to recover, by an upgrade of the release."""

    down_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, seconds(draw, 0, 10))

    async def play(self, sim: Simulation) -> None:
        if sim.settings.mode is Mode.OBSERVE:
            sim.change_settings(msgspec.structs.replace(sim.settings, mode=Mode.RECOVER))
            await sim.restart_controller(self.down_s)


class Pause(Act, frozen=True):
    """People pause Rekindle for a while. With `ends` the pause ends by itself after that time."""

    for_s: float
    ends: bool

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, seconds(draw, 1, 300), draw.random() < 0.4)

    async def play(self, sim: Simulation) -> None:
        if sim.truth.paused_since is not None:
            return
        until = sim.clock.now() + timedelta(seconds=self.for_s)
        await sim.person.pause(**({"until": until.isoformat()} if self.ends else {}))
        await asyncio.sleep(self.for_s)
        await sim.person.resume()


AnyDeed = (
    Promotion
    | Pause
    | Uncordon
    | Cordon
    | Suspension
    | Hold
    | NodeHold
    | JobDeletion
    | Disagreement
    | Fencing
    | NodeRemoval
    | SpareChange
    | StartAgain
)
