"""The real agent of a node as a process. Its files are in a folder, and its token is bound to a pod that KWOK
plays.

stage.py starts one agent for each of the first nodes. A test writes into the folder what the kernel and the
ranks would write.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from chaos.cluster.host import Host
from chaos.processes.children import Child, spawn
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from recover.k8s.kinds import PODS
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import AGENT, SYSTEM, token

__all__ = ["Agent", "LaidHost", "agent_pod", "kubelets", "started"]

_WATCH_S = 600.0
_AGAIN_S = 0.5
_APART = timedelta(milliseconds=10)

_SETTINGS = (
    # The agent must not read a real GPU of this machine instead of the node's GPUs.
    "nvml.enabled=false",
    # The controller creates the NodeHealth while the agent starts.
    "publishing.missing_retry_s=0.2",
)


class LaidHost(Host):
    """The files of a machine that has just booted."""

    def __init__(self, root: Path, node: str) -> None:
        super().__init__(root, node, gpus=8, now=lambda: datetime.now(UTC))
        self.boot_id = str(uuid.uuid4())
        self.boot(self.boot_id)


class Agent:
    """One node's folder and the process that reads it."""

    def __init__(self, node: str, host: Host, child: Child) -> None:
        self.node = node
        self.host = host
        self.child = child

    def xid(self, code: int, text: str) -> None:
        """Writes the line of the NVIDIA driver about the node's first GPU, as the kernel gives the line to
        its readers."""
        pci = self.host.gpus[0].pci.removesuffix(".0")
        self.host.append_kmsg(f"NVRM: Xid (PCI:{pci}): {code}, {text}")

    def prints(self, pod: Any, lines: Sequence[str]) -> None:
        """Writes the lines into the CRI log of the pod's first container, in one write, with times that are
        10 ms apart. From then on the pod's cgroup exists."""
        container = pod["spec"]["containers"][0]["name"]
        self.host.cgroup(pod["metadata"]["uid"], container).mkdir(parents=True, exist_ok=True)
        folder = self.host.log_folder(pod) / container
        folder.mkdir(parents=True, exist_ok=True)
        begin = datetime.now(UTC) - len(lines) * _APART
        text = "".join(
            f"{(begin + number * _APART).isoformat()} stdout F {line}\n"
            for number, line in enumerate(lines, 1)
        )
        with (folder / "0.log").open("ab", buffering=0) as log:
            log.write(text.encode())


async def started(api: KubeApi, plane: ControlPlane, host: Host, node: str) -> Agent:
    """Starts the agent of a Node that exists already. The agent publishes as soon as the controller has
    created its NodeHealth."""
    pod = await agent_pod(api, node)
    file = host.root / "agent.token"
    file.write_text(await token(api, AGENT, pod=pod), encoding="utf-8")
    command = [sys.executable, "-m", "detectors.commands.main", "agent", "--node", node]
    command += ["--host-root", str(host.root), "--server", plane.url, "--ca-file", str(plane.ca_file)]
    command += ["--token-file", str(file), "--listen", "127.0.0.1:0"]
    for setting in _SETTINGS:
        command += ["--set", setting]
    return Agent(node, host, await spawn(f"agent {node}", command, plane.folder / f"agent-{node}.log"))


async def agent_pod(api: KubeApi, node: str) -> Any:
    """Creates the agent's pod, bound to the node as the DaemonSet controller and the scheduler would have
    bound it."""
    body = {
        "metadata": {"name": f"{AGENT}-{node}"},
        "spec": {
            "serviceAccountName": AGENT,
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "none"}],
        },
    }
    return msgspec.json.decode(await api.request("POST", PODS.path(namespace=SYSTEM), body=body))


@asynccontextmanager
async def kubelets(api: KubeApi, agents: Mapping[str, Agent]) -> AsyncIterator[None]:
    """While the block runs, removes the cgroup of a pod that has ended, and the logs of a pod that is
    removed."""
    playing = asyncio.create_task(_play_kubelets(api, agents))
    try:
        yield
    finally:
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing


async def _play_kubelets(api: KubeApi, agents: Mapping[str, Agent]) -> None:
    """Continues after an outage of the API server; pods that were removed meanwhile keep their files."""
    while True:
        with contextlib.suppress(ApiError, ReplyLost):
            async for event in api.watch(PODS.path(), params={}, timeout_s=_WATCH_S, silence_s=_WATCH_S):
                pod = msgspec.json.decode(event.object)
                agent = agents.get(pod["spec"].get("nodeName", ""))
                if agent is None:
                    continue
                if event.type == "DELETED":
                    agent.host.forget(pod)
                elif pod["status"]["phase"] in ("Succeeded", "Failed"):
                    shutil.rmtree(agent.host.cgroup(pod["metadata"]["uid"], ""), ignore_errors=True)
        await asyncio.sleep(_AGAIN_S)
