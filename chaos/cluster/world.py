"""The whole simulated cluster in one object: store, scheduler, controllers, kubelets on one of two runtimes,
and the API over HTTP if wanted. The demo, the scenarios and the simulator build on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from chaos.apiserver.client import Client
from chaos.apiserver.kinds import KINDS, Object
from chaos.apiserver.rest import Server, serve
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.containers import Exit, Runtime
from chaos.cluster.host import Host
from chaos.cluster.kubelet import Kubelet
from chaos.cluster.podworker import KubeletSettings
from chaos.cluster.process_runtime import ProcessRuntime
from chaos.cluster.virtual import real_clock
from chaos.cluster.virtual_runtime import Behaviour, VirtualRuntime
from chaos.controllers.base import Controller
from chaos.controllers.garbage import GarbageCollector
from chaos.controllers.jobs import JobController
from chaos.controllers.jobsets import JobSetController
from chaos.controllers.kubeflow import KubeflowController
from chaos.controllers.kubeflow_kinds import PADDLE, PYTORCH, TENSORFLOW
from chaos.controllers.nodes import LifecycleSettings, NodeLifecycle
from chaos.controllers.placement import GPU
from chaos.controllers.scheduler import Scheduler
from recover.k8s.kinds import PODS

__all__ = ["LocalCluster", "Shape", "process_cluster", "virtual_cluster"]


class Shape(msgspec.Struct, frozen=True):
    """The shape of the cluster to build. Every node offers its GPUs and, besides, `devices`: extended
    resources of any name. Objects are validated against `crds`. `labels` and `clock_leads_s` are by node
    name; a lead is the time by which a node's clock is ahead of the others. `joining` nodes are off, and
    unknown to the API, until somebody boots them."""

    nodes: int = 5
    gpus_per_node: int = 1
    devices: Mapping[str, int] = {}
    crds: Sequence[Object] = ()
    seed: int = 0
    lifecycle: LifecycleSettings = LifecycleSettings()
    kubelet: KubeletSettings = KubeletSettings()
    labels: Mapping[str, Mapping[str, str]] = {}
    clock_leads_s: Mapping[str, float] = {}
    joining: frozenset[str] = frozenset()


class LocalCluster:
    """A simulated cluster. `process_cluster` and `virtual_cluster` create it. Nodes are called n1, n2, ..."""

    def __init__(
        self, shape: Shape, store: MemoryCluster, runtime: Runtime, hosts: Mapping[str, Host]
    ) -> None:
        self.store = store
        self.runtime = runtime
        self.hosts = hosts
        self.server: Server | None = None
        self._failures: list[Exception] = []
        self._clients: dict[str, Client] = {}
        self.scheduler = Scheduler(store)
        self._controllers: tuple[Controller, ...] = (
            self.scheduler,
            JobController(store),
            KubeflowController(store, PYTORCH),
            KubeflowController(store, PADDLE),
            KubeflowController(store, TENSORFLOW),
            JobSetController(store),
            NodeLifecycle(store, shape.lifecycle),
            GarbageCollector(store),
        )
        self._kubelets = {
            name: Kubelet(
                name,
                store,
                runtime,
                devices={GPU: shape.gpus_per_node, **shape.devices},
                settings=shape.kubelet,
                labels=shape.labels.get(name, {}),
                clock_lead_s=shape.clock_leads_s.get(name, 0.0),
                power_on=hosts[name].boot if name in hosts else _no_files,
                watch_task=self._watch_task,
            )
            for name in node_names(shape.nodes)
        }
        self._joining = shape.joining
        self._tasks: list[asyncio.Task[None]] = []

    # --- for tests, demo and scenarios --------------------------------------------------------------------

    def client(self, user: str) -> Client:
        """Returns the in-process client of that user. The same user always gets the same client, so that
        tests can disturb it."""
        if self.server is not None:
            return self.server.client(user)
        return self._clients.setdefault(user, Client(self.store, user))

    async def apply(self, manifest: Object, namespace: str = "default") -> Object:
        """Creates the object of a manifest, finding its resource by apiVersion and kind."""
        found = [r for r in KINDS if (r.api_version, r.kind) == (manifest["apiVersion"], manifest["kind"])]
        if not found:
            raise ValueError(f"{manifest['apiVersion']} {manifest['kind']}: not a kind that is simulated")
        place = manifest.get("metadata", {}).get("namespace", namespace) if found[0].namespaced else ""
        made: Object = msgspec.json.decode(await self.client("user").create(found[0], manifest, place))
        return made

    def pod(self, name: str, namespace: str = "default") -> Object:
        return self.store.read(PODS, name, namespace).body

    def append_kmsg(self, node: str, text: str) -> int:
        """Writes a line to the kernel log of that node. Returns its sequence number."""
        return self.hosts[node].append_kmsg(text)

    def crash_pod(self, name: str, ended: Exit, namespace: str = "default") -> None:
        """Kills the pod's containers. `ended` is how they are then reported to have ended."""
        self.runtime.kill(self.pod(name, namespace)["metadata"]["uid"], ended)

    def signal_pod(self, name: str, number: int, namespace: str = "default") -> None:
        """Sends a real signal to the pod's processes: SIGSTOP makes a rank hang."""
        self.runtime.send(self.pod(name, namespace)["metadata"]["uid"], number)

    async def crash_node(self, name: str) -> None:
        await self._kubelets[name].crash()

    async def boot_node(self, name: str) -> None:
        """Boots a node that went down, with a new boot id."""
        await self._kubelets[name].boot()

    # --- up and down --------------------------------------------------------------------------------------

    async def start(self) -> None:
        for controller in self._controllers:
            task = asyncio.create_task(controller.run(), name=controller.user)
            self._watch_task(task)
            self._tasks.append(task)
        for name in self._kubelets:
            if name not in self._joining:
                await self.boot_node(name)

    def check(self) -> None:
        """Raises an ExceptionGroup if parts of the simulation have ended with errors."""
        if self._failures:
            raise ExceptionGroup("the simulated cluster failed", self._failures)

    async def stop(self) -> None:
        """Ends everything, and then raises errors as `check` does."""
        for kubelet in self._kubelets.values():
            if kubelet.alive:
                await kubelet.crash()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.check()

    def _watch_task(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self._note_failure)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failures.append(error)


def _no_files(_: str) -> None:
    """Does nothing: virtual nodes have no files."""


def node_names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


@asynccontextmanager
async def process_cluster(
    root: Path,
    shape: Shape | None = None,
    *,
    volumes: Mapping[str, Path] | None = None,
    rest: bool = True,
) -> AsyncIterator[LocalCluster]:
    """Yields a cluster whose containers are real processes. Each node's files are under `root/<node>`. No
    process is left behind.

    `volumes` maps claims to folders. Over HTTP the server uses the bearer token as the user's name.
    """
    shape = shape or Shape()
    now = real_clock().now
    store = _store(shape, now)
    hosts = {name: Host(root / name, name, shape.gpus_per_node, now) for name in node_names(shape.nodes)}
    runtime = ProcessRuntime(hosts, volumes or {}, now)
    cluster = LocalCluster(shape, store, runtime, hosts)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runtime.close)
        if rest:
            cluster.server = await stack.enter_async_context(serve(store))
        stack.push_async_callback(cluster.stop)
        await cluster.start()
        yield cluster


@asynccontextmanager
async def virtual_cluster(
    now: Callable[[], datetime],
    behaviour: Callable[[Object], Behaviour],
    shape: Shape | None = None,
) -> AsyncIterator[LocalCluster]:
    """Yields a cluster whose containers are coroutines. It is meant for virtual.run, and has no REST and no
    files."""
    shape = shape or Shape()
    store = _store(shape, now)
    cluster = LocalCluster(shape, store, VirtualRuntime(behaviour), {})
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


def _store(shape: Shape, now: Callable[[], datetime]) -> MemoryCluster:
    store = MemoryCluster(now, seed=shape.seed)
    for crd in shape.crds:
        store.add_crd(crd)
    return store
