"""Acts around the repair of a node: visitors, lower modes, and people or reboots that disturb the repair."""

from __future__ import annotations

import asyncio
import random
from typing import Self

import msgspec

from chaos.simulate.acts.base import Act, Scene, seconds
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import NAMESPACE
from chaos.simulated.repairs import VISITOR
from recover.api import Incident
from recover.model.modes import Mode

__all__ = [
    "AnyRepairTrouble",
    "Freeze",
    "IncidentDeletion",
    "LowerMode",
    "RebootInRepair",
    "StepDeletion",
    "Visit",
]

_PATIENCE_LOOKS = 40
_LOOK_S = 10.0


class Visit(Act, frozen=True):
    """A visitor pod arrives, with a GPU or without one, and may stay longer than a repair waits."""

    name: str
    gpus: int
    stays_s: int

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        name = f"visitor-{draw.randrange(10**9)}"
        return cls(at_s, name, draw.randint(0, 1), draw.choice([60, 600, 3600]))

    async def play(self, sim: Simulation) -> None:
        limits = {"resources": {"limits": {"nvidia.com/gpu": self.gpus}}} if self.gpus else {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "labels": {VISITOR: str(self.stays_s)}},
            "spec": {
                "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "none", **limits}],
            },
        }
        await sim.cluster.apply(pod, NAMESPACE)


class Freeze(Act, frozen=True):
    """A person holds a quarantined node for a while."""

    for_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, seconds(draw, 1, 200))

    async def play(self, sim: Simulation) -> None:
        for node in sim.cordoned()[:1]:
            for value in ("true", None):
                hold = {"metadata": {"annotations": {"rekindle.dev/hold": value}}}
                await sim.person.edit_node(node, hold)
                await asyncio.sleep(self.for_s if value else 0.0)


class LowerMode(Act, frozen=True):
    """A person lowers the mode by an upgrade of the release, and raises it again by another upgrade."""

    down_s: float
    lower_s: float

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, seconds(draw, 0, 10), seconds(draw, 1, 120))

    async def play(self, sim: Simulation) -> None:
        for mode in (Mode.RECOVER, Mode.REPAIR):
            sim.change_settings(msgspec.structs.replace(sim.settings, mode=mode))
            await sim.restart_controller(self.down_s)
            await asyncio.sleep(self.lower_s)


class _InRepair(Act, frozen=True):
    """An act on one of the nodes under repair, as soon as a repair runs."""

    which: int

    @classmethod
    def drawn(cls, at_s: float, scene: Scene, draw: random.Random) -> Self:
        return cls(at_s, draw.randrange(8))

    async def found(self, sim: Simulation) -> Incident | None:
        """Returns the Incident of a node under repair. Returns None if no repair begins in time."""
        for _ in range(_PATIENCE_LOOKS):
            repaired = [i for i in sim.incidents() if i.status.repair is not None and i.status.repair.active]
            if repaired:
                return repaired[self.which % len(repaired)]
            await asyncio.sleep(_LOOK_S)
        return None


class StepDeletion(_InRepair, frozen=True):
    """A person deletes the Job of a running step, once the Incident shows that the controller requested the
    Job. An earlier deletion would look as if the Job had never been created."""

    async def play(self, sim: Simulation) -> None:
        incident = await self.found(sim)
        repair = incident.status.repair if incident is not None else None
        if repair is not None and repair.step is not None and repair.step.asked_at is not None:
            await sim.person.delete_repair(repair.step.job, sim.settings.namespace)


class IncidentDeletion(_InRepair, frozen=True):
    async def play(self, sim: Simulation) -> None:
        incident = await self.found(sim)
        if incident is not None:
            await sim.person.delete_incident(incident.metadata.name)


class RebootInRepair(_InRepair, frozen=True):
    """The node reboots by itself or a person reboots it, at any point of its repair."""

    async def play(self, sim: Simulation) -> None:
        incident = await self.found(sim)
        node = incident.spec.node if incident is not None else ""
        if node in sim.machines:
            await sim.crash_node(node)
            await asyncio.sleep(25.0 * (1 + self.which))
            if node in sim.dead_nodes():
                await sim.boot_node(node)


AnyRepairTrouble = Visit | Freeze | LowerMode | StepDeletion | IncidentDeletion | RebootInRepair
