"""The demo cluster with the shipped daemons on it: one agent process for each node, one controller process.

The cluster is simulated (chaos/cluster). Agents, controller and training are the real programs, as separate
processes. Agents and controller use the cluster's API server over loopback.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from chaos.apiserver.client import Client
from chaos.apiserver.kinds import CLAIMS, Object
from chaos.apiserver.rest import write_kubeconfig
from chaos.cluster.world import LocalCluster, Shape, process_cluster
from chaos.processes.children import Child, spawn
from chaos.scenarios.manifests import CLAIM, NAMESPACE
from detectors.wire.contract import CoverageState, Source
from detectors.wire.resource import Resource
from recover.api.crds import manifests
from recover.k8s.kinds import LEASES, NAMESPACES, NODEHEALTHS
from recover.kube.lease import LEASE
from recover.policy.settings import Settings

__all__ = ["CONTROLLER", "Stage", "StageError", "raised"]

CONTROLLER = "controller"
"""User name of the controller in the audit log of the API server."""
START_S = 60.0


class StageError(Exception):
    """The stage could not be set, or something went wrong on it. If a process failed, the message names the
    process and shows its last lines."""


class Stage:
    """The objects that a scenario may touch."""

    def __init__(self, folder: Path, cluster: LocalCluster, url: str, options: Sequence[str]) -> None:
        self.folder = folder
        self.cluster = cluster
        self.url = url
        self.kubeconfig = folder / "kubeconfig"
        self.agents: dict[str, Child] = {}
        self.controller: Child | None = None
        self._options = options

    @property
    def client(self) -> Client:
        return self.cluster.client("admin")

    def objects(self, resource: Resource) -> list[Object]:
        return self.cluster.store.objects(resource)

    async def start_agent(self, node: str) -> None:
        command = [sys.executable, "-m", "detectors.commands.main", "agent", "--node", node]
        command += ["--host-root", str(self.cluster.hosts[node].root), "--server", self.url]
        command += ["--token-file", self._token(f"agent-{node}"), "--listen", "127.0.0.1:0"]
        # A real GPU of this machine must not take the place of the simulated ones.
        command += ["--set", "nvml.enabled=false"]
        self.agents[node] = await spawn(f"agent {node}", command, self.folder / f"agent-{node}.log")

    def _token(self, user: str) -> str:
        """Returns a file with the user's token. The simulated API server accepts the user's name as a
        token."""
        file = self.folder / f"{user}.token"
        file.write_text(user, encoding="utf-8")
        return str(file)

    async def start_controller(self) -> Child:
        """Starts the controller. A restart after a kill uses the same command, and the controller knows only
        the API."""
        command = [sys.executable, "-m", "detectors.commands.main", "controller", "--listen", "127.0.0.1:0"]
        command += ["--server", self.url, "--token-file", self._token(CONTROLLER)]
        command += ["--identity", CONTROLLER]  # like a container that is restarted in its pod
        for option in self._options:
            command += ["--set", option]
        self.controller = await spawn(CONTROLLER, command, self.folder / "controller.log")
        return self.controller

    async def until(self, done: Callable[[], bool], words: str) -> None:
        """Waits for agents or controller. Raises StageError with `words`, which say what they have not
        done."""
        try:
            async with asyncio.timeout(START_S):
                while not done():
                    self.check_alive()
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            tails = "\n".join(child.last_lines(5) for child in self._children())
            load = f"the load of this machine is {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
            busy = f"{load}: if other programs cause the load, try again once they have ended"
            raise StageError(f"{words} within {START_S:g} s; {busy}. The last lines:\n{tails}") from error

    def all_covered(self) -> bool:
        """Whether every agent has published that it reads its kernel log."""
        covered = {
            health["metadata"]["name"]
            for health in self.objects(NODEHEALTHS)
            for row in health.get("status", {}).get("coverage", [])
            if row["source"] == Source.KMSG and row["state"] == CoverageState.COVERED
        }
        return covered >= set(self.agents)

    def check_alive(self) -> None:
        """Raises StageError if a daemon ended by itself."""
        for child in self._children():
            if not child.alive:
                raise StageError(f"{child.name} ended by itself:\n{child.last_lines()}")

    def _children(self) -> list[Child]:
        return [*self.agents.values(), *([self.controller] if self.controller else [])]

    async def stop(self) -> None:
        await asyncio.gather(*(child.stop() for child in self._children()))


@asynccontextmanager
async def raised(
    folder: Path, *, nodes: int, mode: str, settings: Sequence[str] = (), shape: Shape | None = None
) -> AsyncIterator[Stage]:
    """Sets the stage in an empty folder, and leaves no process behind, however the block ends.

    `settings` are overrides of the controller's settings, as its `--set` takes them. `shape` gives the GPUs
    of a node and the times of the cluster's own controllers; its nodes and CRDs are set here.
    """
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        shape = msgspec.structs.replace(shape or Shape(), nodes=nodes, crds=manifests())
        cluster = await stack.enter_async_context(
            process_cluster(folder / "nodes", shape, volumes={CLAIM: checkpoints})
        )
        assert cluster.server is not None
        stage = Stage(folder, cluster, cluster.server.url, [f"mode={mode}", *settings])
        for namespace in (NAMESPACE, Settings().namespace):
            await stage.client.create(NAMESPACES, {"metadata": {"name": namespace}})
        claim = {"metadata": {"name": CLAIM}, "spec": {"accessModes": ["ReadWriteMany"]}}
        await stage.client.create(CLAIMS, claim, NAMESPACE)
        await stage.client.create(LEASES, {"metadata": {"name": LEASE}}, Settings().namespace)
        write_kubeconfig(stage.kubeconfig, stage.url, "admin")
        stack.push_async_callback(stage.stop)
        await stage.start_controller()
        await stage.until(
            lambda: len(stage.objects(NODEHEALTHS)) == nodes, "the controller has not created all NodeHealths"
        )
        for node in cluster.hosts:
            await stage.start_agent(node)
        await stage.until(stage.all_covered, "the agents have not reported that they read their kernel logs")
        yield stage
