"""A model of one node's kubelet: it registers the node, renews its lease, and gives each pod that is bound to
the node a worker (podworker.py). crash() and boot() are the machine's end and return."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from chaos.apiserver.client import Client
from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster, stamp
from chaos.cluster.containers import Exit, Runtime
from chaos.cluster.podworker import KubeletSettings, PodWorker
from chaos.controllers.base import with_condition
from chaos.controllers.nodes import NODE_LEASES
from detectors.client.kubeapi import ApiError, ReplyLost
from recover.k8s.kinds import LEASES, NODES, PODS

__all__ = ["Kubelet"]


class Kubelet:
    """`devices` are the extended resources that the node offers, by name; `clock_lead_s` is how far its clock
    is ahead of the others; `power_on` gets the boot id before anything else; `watch_task` gets each task, to
    notice its failure."""

    def __init__(
        self,
        name: str,
        store: MemoryCluster,
        runtime: Runtime,
        *,
        devices: Mapping[str, int],
        settings: KubeletSettings,
        labels: Mapping[str, str],
        clock_lead_s: float,
        power_on: Callable[[str], None],
        watch_task: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.name = name
        self.api = Client(store, f"system:node:{name}")
        self.boots = 0
        self.alive = False
        self._store = store
        self._runtime = runtime
        self._devices = dict(devices)
        self._settings = settings
        self._labels = dict(labels)
        self._clock_lead = timedelta(seconds=clock_lead_s)
        self._power_on = power_on
        self._watch_task = watch_task
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heart: asyncio.Task[None] | None = None
        self._seen = 0

    @property
    def boot_id(self) -> str:
        """Id of the boot. It is new with each boot, and the same in each run of the same test."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}.boot-{self.boots}.rekindle.dev"))

    def now(self) -> datetime:
        """Returns the time by this machine's own clock."""
        return self._store.now() + self._clock_lead

    # --- the machine --------------------------------------------------------------------------------------

    async def boot(self) -> None:
        assert not self.alive, f"node {self.name} is up already"
        self.boots += 1
        self.alive = True
        self._power_on(self.boot_id)
        await self._register()
        self._heart = asyncio.create_task(self._beat(), name=f"heartbeat {self.name}")
        self._watch_task(self._heart)
        self._seen = self._store.version
        self._store.history(PODS).subscribe(self, self._pods_changed)
        for pod in self._store.objects(PODS):
            self._see(pod)

    async def crash(self) -> None:
        """Switches the power off: containers die at once, nothing is reported, no heartbeat comes."""
        self.alive = False
        self._store.history(PODS).unsubscribe(self)
        for uid in self._workers:
            self._runtime.kill(uid, Exit.by_signal(9))
        tasks = [*self._tasks.values(), *([self._heart] if self._heart else [])]
        self._workers, self._tasks, self._heart = {}, {}, None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self) -> None:
        try:
            node = self._store.read(NODES, self.name).body
        except ApiError:
            await self.api.create(NODES, {"metadata": {"name": self.name, "labels": self._labels}})
            node = self._store.read(NODES, self.name).body
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastTransitionTime": stamp(self.now()),
        }
        quantities = {name: str(count) for name, count in self._devices.items()}
        quantities |= {"cpu": "64", "memory": "512Gi", "pods": "110"}
        status = {
            "capacity": quantities,
            "allocatable": quantities,
            "conditions": with_condition(node.get("status", {}).get("conditions", []), ready),
            "nodeInfo": {"bootID": self.boot_id, "kubeletVersion": "v1.36.0-simulated"},
            "addresses": [{"type": "Hostname", "address": self.name}],
        }
        await self._renew_lease()
        await self.api.patch(NODES, self.name, {"status": status}, subresource="status")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            with contextlib.suppress(ApiError, ReplyLost):  # the next beat tries again
                await self._renew_lease()

    async def _renew_lease(self) -> None:
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": 40,
            "renewTime": self._store.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self.api.patch(LEASES, self.name, {"spec": spec}, namespace=NODE_LEASES)
        except ApiError as error:
            if not error.not_found:
                raise
            await self.api.create(LEASES, {"metadata": {"name": self.name}, "spec": spec}, NODE_LEASES)

    # --- pods ---------------------------------------------------------------------------------------------

    def _pods_changed(self) -> None:
        for change in self._store.history(PODS).since(self._seen):
            self._seen = change.version
            if change.new is not None:
                self._see(change.new.body)
            elif change.old is not None:
                self._gone(change.old.body)

    def _see(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") != self.name:
            return
        deleted = "deletionTimestamp" in meta
        if uid not in self._workers:
            if pod["status"]["phase"] in ("Succeeded", "Failed") and not deleted:
                return
            worker = PodWorker(self.name, pod, self._store, self.api, self._runtime, self._settings, self.now)
            self._workers[uid] = worker
            self._tasks[uid] = asyncio.create_task(worker.run(), name=f"pod {meta['name']}")
            self._watch_task(self._tasks[uid])
        if deleted:
            self._workers[uid].deleted.set()

    def _gone(self, pod: Object) -> None:
        """Cleans up after a pod that was removed, by this kubelet's own confirmation or by force."""
        uid = pod["metadata"]["uid"]
        if self._workers.pop(uid, None) is None:
            return
        task = self._tasks.pop(uid)
        self._runtime.kill(uid, Exit.by_signal(9))
        self._runtime.forget(self.name, pod)
        if task is not asyncio.current_task():
            task.cancel()
