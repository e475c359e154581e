"""What people do to a simulated cluster: they cordon, release, fence, hold, suspend and delete, whenever they
like. World.py gives each simulation one `Person`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from chaos.cluster.client import Client
from chaos.cluster.controllers.nodes import OUT_OF_SERVICE
from chaos.cluster.kinds import Object
from chaos.simulate.jobs import NAMESPACE
from detectors.kubeapi import ApiError
from recover.kube.cluster import NODES, PYTORCHJOBS, RECOVERIES

if TYPE_CHECKING:
    from chaos.simulate.world import Simulation

__all__ = ["PERSON", "Person"]

PERSON = "person"


class Person:
    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    @property
    def _api(self) -> Client:
        return self._sim.cluster.client(PERSON)

    async def edit_node(self, node: str, body: Object) -> None:
        await self._api.patch(NODES, node, body)

    async def uncordon(self, node: str) -> None:
        await self.edit_node(node, {"spec": {"unschedulable": None}})

    async def cordon(self, node: str) -> None:
        await self.edit_node(node, {"spec": {"unschedulable": True}})

    async def remove_node(self, node: str) -> None:
        await self._api.delete(NODES, node)

    async def out_of_service(self, node: str) -> None:
        """A person says that the machine is off."""
        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        await self.edit_node(
            node, {"spec": {"taints": [*self._sim.node(node)["spec"].get("taints", []), taint]}}
        )

    async def edit_job(self, body: Object, job: str = "llm") -> None:
        """A job that is gone stays so."""
        with contextlib.suppress(ApiError):
            await self._api.patch(self._sim.resource(job), job, body, namespace=NAMESPACE)

    async def delete_job(self, job: str = "llm") -> None:
        with contextlib.suppress(ApiError):
            await self._api.delete(self._sim.resource(job), job, namespace=NAMESPACE)

    async def delete_recoveries(self, job: str = "llm") -> None:
        """Those that run: the person disagrees."""
        for recovery in self._sim.recoveries(job):
            if recovery.active:
                await self._api.delete(RECOVERIES, recovery.metadata.name, namespace=NAMESPACE)

    async def suspend(self, job: str, value: bool) -> None:
        spec = {"suspend": value}
        kubeflow = self._sim.resource(job) == PYTORCHJOBS
        await self.edit_job({"spec": {"runPolicy": spec} if kubeflow else spec}, job)
