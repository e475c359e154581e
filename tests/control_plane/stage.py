"""A real control plane set for a recovery: GPU nodes that KWOK plays, our CRDs, the shipped controller as a
process with its least rights. The test itself writes NodeHealth statuses, as the agents of the nodes would.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from chaos.children import Child, spawn
from detectors.contract import (
    Coverage,
    CoverageState,
    Edge,
    Fault,
    Finding,
    NodeHealthStatus,
    Origin,
    PodProgress,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.kubeapi import ApiError, KubeApi, MergePatch, Resource
from detectors.publish import patch_body
from recover.kube.cluster import NAMESPACES, NODEHEALTHS, NODES, PODS
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.plane import CONTROLLER, ControlPlane
from tests.control_plane.rights import BINDINGS, CONTROLLER_RIGHTS, ROLES, binding

__all__ = ["NAMESPACE", "RealStage", "raised"]

NAMESPACE = "ml"
LIMIT_S = 30.0


class RealStage:
    """What a test does and sees, as the cluster's administrator and as the agents."""

    def __init__(self, api: KubeApi, controller: Child) -> None:
        self.api = api
        self.controller = controller
        self._health: dict[str, NodeHealthStatus] = {}

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Any:
        return msgspec.json.decode(await self.api.request("GET", resource.path(name, namespace)))

    async def all(self, resource: Resource, namespace: str = "", labels: str = "") -> list[Any]:
        path = resource.path(namespace=namespace)
        params = {"labelSelector": labels} if labels else {}
        answer = msgspec.json.decode(await self.api.request("GET", path, params=params))
        return list(answer["items"])

    async def create(self, resource: Resource, body: Any, namespace: str = "") -> Any:
        answer = await self.api.request("POST", resource.path(namespace=namespace), body=body)
        return msgspec.json.decode(answer)

    async def patch(self, resource: Resource, name: str, body: Any) -> None:
        await self.api.request("PATCH", resource.path(name), body=body, content_type=MergePatch)

    async def dies(self, node: str) -> None:
        """KWOK lets go of the node: its lease runs out and its pods never confirm their end."""
        await self.patch(NODES, node, {"metadata": {"labels": {"type": None}}})

        async def is_silent() -> bool:
            conditions = (await self.get(NODES, node))["status"]["conditions"]
            return any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions)

        await self.until(f"{node} NotReady", is_silent)

    async def publish(self, node: str, **changes: Any) -> None:
        """The agent's own way to write: a merge patch of the whole status."""
        status = msgspec.structs.replace(self._health.get(node, NodeHealthStatus()), **changes)
        self._health[node] = status
        path = NODEHEALTHS.path(node, subresource="status")
        await self.api.request("PATCH", path, body=patch_body(status), content_type=MergePatch)

    async def covered(self, node: str) -> None:
        boot = (await self.get(NODES, node))["status"]["nodeInfo"]["bootID"]
        rows = [
            Coverage(source=s, state=CoverageState.COVERED, since=now()) for s in (Source.KMSG, Source.NVML)
        ]
        await self.publish(node, boot_id=boot, coverage=rows)

    async def xid_79(self, node: str) -> None:
        boot = self._health[node].boot_id
        found = Finding(
            id=f"{boot[:8]}-kmsg-1",
            code="xid-79",
            fault=Fault.DEVICE_LOST,
            origin=Origin.KERNEL,
            severity=Severity.FATAL,
            subject=Subject(kind=SubjectKind.DEVICE, pci="0000:3b:00.0"),
            boot_id=boot,
            first_seen=now(),
            last_seen=now(),
            final=True,
            sequence=1,
            evidence="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        )
        await self.publish(node, findings=[found])

    async def steps(self, pod: Any, first: int, last: int) -> None:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        progress = PodProgress(
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            container="train",
            edge=Edge.STEPPING,
            at=now(),
            first_step=first,
            first_step_at=now(),
            last_step=last,
            last_step_at=now(),
            median_step_s=1.0,
        )
        await self.publish(node, pods=[progress])

    async def end(self, pod: Any, *, exit_code: int, message: bytes = b"") -> None:
        """The pod's only container ends, and its kubelet says so."""
        name = pod["spec"]["containers"][0]["name"]
        ended = {"exitCode": exit_code, "finishedAt": now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        if message:
            ended["message"] = message.decode()
        container = {"name": name, "image": "none", "imageID": "", "ready": False, "restartCount": 0}
        status = {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [{**container, "state": {"terminated": ended}}],
        }
        path = PODS.path(pod["metadata"]["name"], pod["metadata"]["namespace"], "status")
        await self.api.request("PATCH", path, body={"status": status}, content_type=MergePatch)

    async def running(self, job: str, count: int, *, but: Sequence[str] = ()) -> list[Any]:
        """The pods of the job, all running, leaving out those uids."""

        async def found() -> list[Any] | None:
            pods = [
                pod
                for pod in await self.all(PODS, NAMESPACE)
                if any(owner["name"] == job for owner in pod["metadata"].get("ownerReferences", []))
            ]
            up = [p for p in pods if p["status"]["phase"] == "Running" and p["metadata"]["uid"] not in but]
            return up if len(up) == count else None

        return list(await self.until(f"{count} running pods of {job}", found))

    async def until(self, what: str, found: Callable[[], Awaitable[Any]]) -> Any:
        """What `found` answers once it is true. Fails with the end of the controller's log."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (answer := await found()):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"no {what} within {LIMIT_S:g} s\n{self.controller.last_lines(25)}")
        return answer


def now() -> datetime:
    return datetime.now(UTC)


def gpu_node(name: str) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": room,
            "capacity": room,
            "nodeInfo": {"bootID": f"boot-of-{name}"},
        },
    }


@asynccontextmanager
async def raised(plane: ControlPlane, *, nodes: int, settings: Sequence[str]) -> AsyncIterator[RealStage]:
    """Ends the controller and removes what was made, however the block ends."""
    async with KubeApi(plane.credentials()) as api:
        await install_crds(api)
        for name in (NAMESPACE, "rekindle-system"):
            await _there(api, NAMESPACES, {"metadata": {"name": name}})
        await _there(api, ROLES, CONTROLLER_RIGHTS)
        await _there(api, BINDINGS, binding(CONTROLLER))
        command = [sys.executable, "-m", "detectors.cli", "controller", "--listen", "127.0.0.1:0"]
        command += ["--server", plane.url, "--ca-file", str(plane.ca_file)]
        command += ["--token-file", str(plane.token_file(CONTROLLER))]
        for setting in settings:
            command += ["--set", setting]
        controller = await spawn("controller", command, plane.folder / "rekindle-controller.log")
        try:
            stage = RealStage(api, controller)
            names = [f"n{number}" for number in range(1, nodes + 1)]
            for name in names:
                await stage.create(NODES, gpu_node(name))
            for name in names:
                await stage.until(f"NodeHealth of {name}", partial(_ready_with_health, stage, name))
                await stage.covered(name)
            yield stage
        finally:
            await controller.stop()
            await wiped(api)


async def _ready_with_health(stage: RealStage, name: str) -> bool:
    conditions = (await stage.get(NODES, name))["status"].get("conditions", [])
    known = {health["metadata"]["name"] for health in await stage.all(NODEHEALTHS)}
    return name in known and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def _there(api: KubeApi, resource: Resource, body: Any) -> None:
    with contextlib.suppress(ApiError):
        await api.request("POST", resource.path(), body=body)
