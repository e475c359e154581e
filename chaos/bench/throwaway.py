"""Sets up a throwaway control plane for a bench: nodes of KWOK, the CRDs, the shipped controller, one agent.

The bench changes and deletes only what it created itself, and refuses a cluster that contains anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos.bench.agent_access import agent_access
from chaos.bench.arguments import as_arguments
from chaos.bench.ours import NAMESPACE, PREFIX, START_S, each, is_served, prepared, refuse_others, wiped
from chaos.bench.sight import Sight, observing
from chaos.cluster.host import Host
from chaos.processes.children import Child, spawn
from chaos.scenarios.stage import StageError
from detectors.agent.publish import patch_body
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.contract import Coverage, CoverageState, NodeHealthStatus, Source
from detectors.wire.resource import MergePatch, Resource
from recover.cli.access import Access
from recover.k8s.kinds import (
    NODEHEALTHS,
    NODES,
)

__all__ = ["GPUS_PER_NODE", "NAMESPACE", "POOL", "Throwaway", "is_served", "raised"]

GPUS_PER_NODE = 8
POOL = {"rekindle.dev/bench-pool": "struck"}
"""Label of the struck node and of a few others, so that a small gang can be kept near the struck node."""
POOL_NODES = 8
KWOK = ("type", "kwok")
"""Label by which KWOK recognises the nodes that it simulates."""


_LISTEN = ("--listen", "127.0.0.1:0")


class _Line(msgspec.Struct):
    event: str = ""
    what: str = ""
    at: str = ""


class Throwaway:
    """The part of the cluster that a bench may touch. The node `struck` has a real agent; the other nodes are
    only API objects."""

    def __init__(self, api: KubeApi, sight: Sight, folder: Path, nodes: int) -> None:
        self.api = api
        self.sight = sight
        self.folder = folder
        self.nodes = [f"{PREFIX}{number:05}" for number in range(1, nodes + 1)]
        self.struck = self.nodes[0]
        self.host = Host(folder / self.struck, self.struck, GPUS_PER_NODE, lambda: datetime.now(UTC))
        self.children: dict[str, Child] = {}

    async def create(self, resource: Resource, body: Any, namespace: str = "") -> None:
        await self.api.request("POST", resource.path(namespace=namespace), body=body)

    async def patch(
        self, resource: Resource, name: str, body: Any, *, namespace: str = "", subresource: str = ""
    ) -> None:
        path = resource.path(name, namespace, subresource)
        await self.api.request("PATCH", path, body=body, content_type=MergePatch)

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Deletes the object at once, with everything that it owns. A refusal is no error: the object may
        already be gone."""
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        with contextlib.suppress(ApiError):
            await self.api.request("DELETE", resource.path(name, namespace), body=options)

    async def boot(self) -> None:
        """Boots the struck node: it has a new kernel log, and earlier findings no longer count. The old log
        must not have been empty, because only then does the agent notice that the log is another."""
        boot_id = str(uuid.uuid4())
        self.host.boot(boot_id)
        body = {"status": {"nodeInfo": {"bootID": boot_id}}}
        await self.patch(NODES, self.struck, body, subresource="status")
        await self.sight.moment("new boot in NodeHealth", NODEHEALTHS.plural, self.struck, boot_id)

    def strike(self, xid: int, words: str) -> None:
        """Writes an Xid to the kernel log of the struck node, as its driver would."""
        address = self.host.gpus[0].pci.rsplit(".", 1)[0]
        self.host.append_kmsg(f"NVRM: Xid (PCI:{address}): {xid}, {words}")

    async def start_agent(self, access: list[str]) -> None:
        """Starts the agent. `access` are the arguments that name the API server and the credentials."""
        command = [
            sys.executable,
            "-m",
            "detectors.commands.main",
            "agent",
            "--node",
            self.struck,
            *access,
            *_LISTEN,
        ]
        # A real GPU of this machine must not take the place of the simulated ones.
        command += ["--host-root", str(self.host.root), "--set", "nvml.enabled=false"]
        self.children["agent"] = await spawn("agent", command, self.folder / "agent.log")

    async def start_controller(self, access: list[str], settings: Iterable[str]) -> None:
        command = [sys.executable, "-m", "detectors.commands.main", "controller", *access, *_LISTEN]
        for setting in settings:
            command += ["--set", setting]
        self.children["controller"] = await spawn("controller", command, self.folder / "controller.log")

    def written(self) -> list[tuple[str, float]]:
        """Returns the writes that the controller's log reports, without Events, and the times of their
        replies."""
        lines = self.children["controller"].log.read_bytes().splitlines()
        decoded = (msgspec.json.decode(line, type=_Line) for line in lines if line.endswith(b"}"))
        return [(d.what, datetime.fromisoformat(d.at).timestamp()) for d in decoded if d.event == "written"]

    def last_lines(self) -> str:
        observer = (self.folder / "observer.log").read_text(encoding="utf-8", errors="replace")[-2000:]
        tails = {"observer": observer} | {name: child.last_lines(8) for name, child in self.children.items()}
        return "\n".join(f"{name}:\n{tail}" for name, tail in tails.items())

    async def stop(self) -> None:
        await asyncio.gather(*(child.stop() for child in self.children.values()))


@asynccontextmanager
async def raised(
    access: Access, folder: Path, *, nodes: int, settings: Sequence[str]
) -> AsyncIterator[Throwaway]:
    """Sets the stage. However the block ends, only the CRDs and two namespaces stay.

    Raises StageError, before anything has changed, for a cluster that is not a throwaway cluster.
    """
    credentials, args = await access.credentials(), as_arguments(access)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(KubeApi(credentials))
        await refuse_others(api, KWOK)
        await prepared(api)
        stack.push_async_callback(wiped, api)
        stage = Throwaway(api, await stack.enter_async_context(_seeing(args, folder)), folder, nodes)
        stack.push_async_callback(stage.stop)
        try:
            await _set(stage, args, await agent_access(api, credentials, folder), settings)
            yield stage
        except StageError as error:
            raise StageError(f"{error}\n{stage.last_lines()}") from error


def _seeing(args: Sequence[str], folder: Path) -> contextlib.AbstractAsyncContextManager[Sight]:
    return observing(args, folder / "observer.log")


async def _set(stage: Throwaway, access: list[str], of_agent: list[str], settings: Sequence[str]) -> None:
    sight, nodes = stage.sight, set(stage.nodes)
    boots = {name: str(uuid.uuid4()) for name in stage.nodes}
    stage.host.boot(boots[stage.struck])
    pool = stage.nodes[:POOL_NODES]
    await each(
        stage.create(NODES, _gpu_node(name, boot_id, POOL if name in pool else {}))
        for name, boot_id in boots.items()
    )
    await stage.start_controller(access, settings)

    def lacking(kind: str, *facts: str) -> set[str]:
        return nodes - {seen.name for seen in sight.all(kind) if {*facts} <= {*seen.facts}}

    await sight.until("NodeHealths of all nodes", lambda: not lacking(NODEHEALTHS.plural), START_S)
    await sight.until("nodes that are all ready", lambda: not lacking(NODES.plural, "ready"), START_S)
    await each(_covered(stage, name) for name in stage.nodes[1:])
    await stage.start_agent(of_agent)
    await sight.moment("coverage by the agent", NODEHEALTHS.plural, stage.struck, Source.KMSG)
    # Kubelets write whole seconds, and Rekindle never acts on a fault that seems to come from before the mode
    # was enabled.
    await asyncio.sleep(1.0)


def _gpu_node(name: str, boot_id: str, labels: dict[str, str]) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    labels = {KWOK[0]: KWOK[1], "kubernetes.io/hostname": name, **labels}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": room, "capacity": room, "nodeInfo": {"bootID": boot_id}},
    }


async def _covered(stage: Throwaway, node: str) -> None:
    """Writes the status that the node's agent would publish: the agent reads the kernel log, and has no
    finding."""
    row = Coverage(source=Source.KMSG, state=CoverageState.COVERED, since=datetime.now(UTC))
    await stage.patch(NODEHEALTHS, node, patch_body(NodeHealthStatus(coverage=[row])), subresource="status")
