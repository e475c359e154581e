"""The actions of people in a simulated cluster, at any time: they cordon, uncordon, fence, hold, suspend and
delete. simulate/world.py gives each simulation one `Person`."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Protocol

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.kinds import Object
from chaos.cluster.world import LocalCluster
from chaos.controllers.nodes import OUT_OF_SERVICE
from chaos.simulated.jobs import Gang, Kind
from chaos.simulated.reading import SPARE, our_taint
from chaos.simulated.setup import Setup
from chaos.simulated.truth import Truth
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.api import Recovery
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, JOBS, NODES, RECOVERIES
from recover.model.pause import PAUSE

__all__ = ["PERSON", "Person"]

PERSON = "person"


class Surroundings(Protocol):
    """The part of a simulation that a person sees."""

    cluster: LocalCluster
    gangs: dict[str, Gang]
    setup: Setup
    truth: Truth

    def node(self, name: str) -> Object: ...
    def resource(self, job: str) -> Resource: ...
    def recoveries(self, job: str) -> list[Recovery]: ...


class Person:
    def __init__(self, sim: Surroundings) -> None:
        self._sim = sim

    @property
    def _api(self) -> Client:
        return self._sim.cluster.client(PERSON)

    async def edit_node(self, node: str, body: Object) -> None:
        await self._api.patch(NODES, node, body)

    async def uncordon(self, node: str) -> None:
        await self.edit_node(node, {"spec": {"unschedulable": None}})

    async def untaint(self, node: str) -> None:
        """Removes the taint, like `kubectl taint node NODE rekindle.dev/unhealthy-`."""
        before = self._sim.node(node)
        taints = [taint for taint in before["spec"].get("taints", []) if taint != our_taint(before)]
        await self.edit_node(node, {"spec": {"taints": taints}})

    async def cordon(self, node: str) -> None:
        await self.edit_node(node, {"spec": {"unschedulable": True}})

    async def remove_node(self, node: str) -> None:
        await self._api.delete(NODES, node)

    async def out_of_service(self, node: str) -> None:
        """Sets the taint by which a person states that the machine is off."""
        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        await self.edit_node(
            node, {"spec": {"taints": [*self._sim.node(node)["spec"].get("taints", []), taint]}}
        )

    async def label_spare(self, node: str, *, is_spare: bool) -> None:
        """Sets or removes the label of a spare. Does nothing if the node is gone."""
        with contextlib.suppress(ApiError):
            await self.edit_node(node, {"metadata": {"labels": {SPARE: "true" if is_spare else None}}})

    async def taint_spare(self, node: str, *, is_spare: bool) -> None:
        with contextlib.suppress(ApiError):
            others = [t for t in self._sim.node(node)["spec"].get("taints", []) if t["key"] != SPARE]
            ours = [{"key": SPARE, "value": "true", "effect": "NoSchedule"}] if is_spare else []
            await self.edit_node(node, {"spec": {"taints": [*others, *ours] or None}})

    async def edit_job(self, body: Object, job: str = "llm") -> None:
        """Patches the job. Does nothing if the job is gone."""
        with contextlib.suppress(ApiError):
            about = self._sim.gangs[job].job
            await self._api.patch(self._sim.resource(job), about.name, body, namespace=about.namespace)

    async def delete_job(self, job: str = "llm") -> None:
        """Deletes the job like kubectl: the garbage collector then deletes the job's pods."""
        asked = Deletion(propagation=Propagation.BACKGROUND)
        with contextlib.suppress(ApiError):
            about = self._sim.gangs[job].job
            await self._api.remove(self._sim.resource(job), about.name, asked, about.namespace)

    async def delete_recoveries(self, job: str = "llm") -> None:
        """Deletes the job's active recoveries, because the person disagrees."""
        for recovery in self._sim.recoveries(job):
            if recovery.active:
                name, namespace = recovery.metadata.name, recovery.metadata.namespace
                await self._api.delete(RECOVERIES, name, namespace=namespace)

    async def delete_incident(self, name: str) -> None:
        await self._api.delete(INCIDENTS, name)

    async def delete_repair(self, job: str, namespace: str) -> None:
        """Deletes the Job of a step. The Job may already be gone."""
        with contextlib.suppress(ApiError):
            await self._api.delete(JOBS, job, namespace=namespace)

    async def pause(self, **data: str) -> None:
        """Pauses Rekindle, like `kubectl create configmap rekindle-pause`."""
        namespace = self._sim.setup.settings.namespace
        await self._api.create(CONFIGMAPS, {"metadata": {"name": PAUSE}, "data": data}, namespace)
        truth, until = self._sim.truth, data.get("until")
        truth.paused_since = self._sim.cluster.store.now()
        truth.paused_until = datetime.fromisoformat(until) if until is not None else None

    async def resume(self) -> None:
        truth = self._sim.truth
        await self._api.delete(CONFIGMAPS, PAUSE, namespace=self._sim.setup.settings.namespace)
        truth.paused_since, truth.acting_since = None, self._sim.cluster.store.now()

    async def suspend(self, job: str, value: bool) -> None:
        spec = {"suspend": value}
        is_kubeflow = self._sim.gangs[job].job.kind is Kind.PYTORCHJOB
        await self.edit_job({"spec": {"runPolicy": spec} if is_kubeflow else spec}, job)
