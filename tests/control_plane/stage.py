"""A real control plane prepared for a recovery: GPU nodes that KWOK plays, Rekindle's CRDs, and the shipped
controller and agents as processes with the permissions of the chart. A test writes into a node's files what
the kernel and the ranks would write.

Nodes beyond the first few have no agent. For them the test writes the NodeHealth status itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.processes.children import Child
from detectors.agent.publish import patch_body
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.rules import families
from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Fault,
    Finding,
    NodeHealth,
    NodeHealthStatus,
    Origin,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.wire.resource import MergePatch, Resource
from detectors.wire.training import Edge, PodProgress
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS, PYTORCHJOBS, RECOVERIES
from tests.control_plane.agents import Agent, LaidHost, kubelets
from tests.control_plane.agents import started as agent_started
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.controllers import start_controller
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import CONTROLLER_NAME, SYSTEM, install_rights

__all__ = ["ANSWERED_S", "LIMIT_S", "LONG_LEASE", "NAMESPACE", "RealStage", "gpu_node", "raised"]

NAMESPACE = "ml"
LIMIT_S = 150.0
"""Time limit in seconds for things that take seconds: the machine may be busy. The limit is below Rekindle's
own long deadlines, the shortest of which is 180 s."""
ANSWERED_S = 30.0
"""Time limit of one request in seconds. The client's own 10 s are short for a busy machine."""
LONG_LEASE = ("lease.duration_s=60", "lease.renew_deadline_s=45")
"""Lease of the controller, unless a test's settings say otherwise. With the shipped lease the controller ends
if a busy machine lets it wait 10 s for an answer, and here nobody starts it again."""
PATIENT = (*LONG_LEASE, "timing.scan_deadline_s=120")
"""Settings of each stage, before those of the test. The test answers the scan, which may take long, too."""
AGENTS_MAX = 8
"""Default number of agents that a stage starts. Each takes about half a second of a core to start."""
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_SOURCES = (Source.KMSG, Source.NVML, Source.PODS, Source.LOGS)
"""The sources that the CRDs of earlier versions know, too."""


class RealStage:
    """The actions and observations of a test, as the cluster's administrator and as the nodes."""

    def __init__(self, api: KubeApi, controller: Child) -> None:
        self.api = api
        self.controller = controller
        self.agents: dict[str, Agent] = {}
        """Agents by node. Nodes that are missing here have no agent."""
        self._stepping: set[str] = set()
        self._publishing = asyncio.Lock()

    async def start_agent(self, plane: ControlPlane, host: LaidHost, node: str) -> None:
        self.agents[node] = await agent_started(self.api, plane, host, node)

    async def end_controller(self) -> None:
        """Ends the controller, even one with which a test has replaced it: it would lead in the next
        stage."""
        await self.controller.stop()

    async def end_agents(self) -> None:
        await asyncio.gather(*(agent.child.stop() for agent in self.agents.values()))

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
        """KWOK stops playing the node: its lease expires, and its pods never confirm their end."""
        await self.patch(NODES, node, {"metadata": {"labels": {"type": None}}})

        async def is_silent() -> bool:
            conditions = (await self.get(NODES, node))["status"]["conditions"]
            return any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions)

        await self.until(f"{node} NotReady", is_silent)

    async def boots(self, node: str, boot_id: str) -> None:
        """The node runs again, in another boot; KWOK plays it again if it had died. If the node has a health
        report, it starts with a new one."""
        info = {"status": {"nodeInfo": {"bootID": boot_id}}}
        path = NODES.path(node, subresource="status")
        await self.api.request("PATCH", path, body=info, content_type=MergePatch)
        await self.patch(NODES, node, {"metadata": {"labels": {"type": "kwok"}}})
        if (await self.health(node)).boot_id:
            await self.covered(node)

    async def uncordons(self, node: str) -> None:
        """A person returns the node to service, as `kubectl uncordon` does."""
        await self.api.request(
            "PATCH",
            NODES.path(node),
            body={"spec": {"unschedulable": None}},
            content_type=MergePatch,
            params={"fieldManager": "kubectl-uncordon"},
        )

    async def health(self, node: str) -> NodeHealthStatus:
        return msgspec.convert(await self.get(NODEHEALTHS, node), NodeHealth).status

    async def publish(self, node: str, **changes: Any) -> None:
        """Publishes as the agent does: by a merge patch of the whole status. Tests use it for a node without
        an agent, or for a status that no agent would report; an agent's next edge overwrites it."""
        async with self._publishing:
            await self._write(node, msgspec.structs.replace(await self.health(node), **changes))

    async def _write(self, node: str, status: NodeHealthStatus) -> None:
        path = NODEHEALTHS.path(node, subresource="status")
        await self.api.request("PATCH", path, body=patch_body(status), content_type=MergePatch)

    async def covered(self, node: str) -> None:
        """Publishes the first report of an agent, for a node that has no agent."""
        boot = (await self.get(NODES, node))["status"]["nodeInfo"]["bootID"]
        rows = [
            Coverage(
                source=source,
                state=CoverageState.COVERED,
                since=now(),
                families=families() if source is Source.KMSG else [],
            )
            for source in _SOURCES
        ]
        await self.publish(node, boot_id=boot, coverage=rows, findings=[], pods=[])

    async def xid_79(self, node: str) -> None:
        """The node's first GPU falls off the bus, and the kernel logs it."""
        if node in self.agents:
            self.agents[node].xid(79, "pid=4242, name=python3, GPU has fallen off the bus.")
            return
        boot = (await self.health(node)).boot_id
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
        """The pod prints these steps. Returns when the NodeHealth reports the first. Later steps are no edge,
        and an agent publishes them with the next edge."""
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        if node in self.agents:
            if meta["uid"] not in self._stepping and first == last:
                last += 1  # a single line proves no step
            self.agents[node].prints(pod, [f"step {step} loss 0.3" for step in range(first, last + 1)])
            if meta["uid"] not in self._stepping:
                await self.until(f"first step of {meta['name']}", lambda: self._is_published(pod))
                self._stepping.add(meta["uid"])
            return
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
        async with self._publishing:  # keeps the reports about other pods that still exist
            there = {one["metadata"]["uid"] for one in await self.all(PODS)} - {progress.uid}
            status = await self.health(node)
            others = [told for told in status.pods if told.uid in there]
            await self._write(node, msgspec.structs.replace(status, pods=[*others, progress]))

    async def _is_published(self, pod: Any) -> bool:
        health = await self.health(pod["spec"]["nodeName"])
        return pod["metadata"]["uid"] in {progress.uid for progress in health.pods}

    async def end(self, pod: Any, *, exit_code: int, message: bytes = b"") -> None:
        """The pod's only container ends, and its kubelet reports it."""
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
        """Returns the pods of the job once all of them run, without the pods that have those uids."""

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
        """Returns the answer of `found` once the answer is true. If time runs out, fails with the recorded
        faults and the end of the controller's log."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (answer := await _asked(found)):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            told = "\n".join([line async for line in self._told()])
            pytest.fail(f"no {what} within {LIMIT_S:g} s\n{told}\n{self.controller.last_lines(25)}")
        return answer

    async def _told(self) -> AsyncIterator[str]:
        for kind in (JOBS, PYTORCHJOBS, PODS, INCIDENTS, RECOVERIES):
            with suppress(ApiError):  # PyTorchJobs exist only beside their operator
                for body in await self.all(kind):
                    meta = body["metadata"]
                    at = (meta.get("deletionTimestamp", ""), meta.get("deletionGracePeriodSeconds", ""))
                    yield f"{kind.kind} {meta['name']} {meta['uid'][:8]} {at}: {body.get('status')}"


async def _asked(found: Callable[[], Awaitable[Any]]) -> Any:
    """Returns None while the API server prepares a new kind and answers 429."""
    try:
        return await found()
    except ApiError as error:
        if error.status != 429:
            raise
        return None


def now() -> datetime:
    return datetime.now(UTC)


def gpu_node(name: str, boot_id: str = "") -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": room,
            "capacity": room,
            "nodeInfo": {"bootID": boot_id or f"boot-of-{name}"},
        },
    }


@asynccontextmanager
async def raised(
    plane: ControlPlane,
    *,
    nodes: int,
    settings: Sequence[str],
    agents: int = AGENTS_MAX,
    reporting: bool = True,
) -> AsyncIterator[RealStage]:
    """Yields a stage with nodes n1, n2, ..., of which the first `agents` have a real agent; without
    `reporting` nobody reports the health of the others. However the block ends, the processes are ended and
    the created objects are removed."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(KubeApi(plane.credentials(), timeout_s=ANSWERED_S))
        await install_crds(api)
        for name in (NAMESPACE, SYSTEM):
            await _there(api, NAMESPACES, {"metadata": {"name": name}})
        await install_rights(api)
        stack.push_async_callback(wiped, api)
        (plane.folder / f"{CONTROLLER_NAME}.log").unlink(missing_ok=True)  # of the previous stage
        stage = RealStage(api, await start_controller(api, plane, [*PATIENT, *settings]))
        stack.push_async_callback(stage.end_controller)
        names = [f"n{number}" for number in range(1, nodes + 1)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts-", dir=plane.folder)))
        hosts = {name: LaidHost(folder / name, name) for name in names[:agents]}
        for name in names:
            await stage.create(NODES, gpu_node(name, hosts[name].boot_id if name in hosts else ""))
        stack.push_async_callback(stage.end_agents)
        await asyncio.gather(*(stage.start_agent(plane, hosts[name], name) for name in hosts))
        await stage.until("node in service with its NodeHealth, each", lambda: _are_known(stage, names))
        await stage.until("account that pods get", lambda: _has_account(stage))
        for name in names[agents:] if reporting else ():
            await stage.covered(name)
        await stage.until("agent that reads its kernel log, each", lambda: _all_covered(stage))
        if not agents:  # Kubernetes records whole seconds, and the mode began in this one
            await asyncio.sleep(1 - now().microsecond / 1e6)
        async with kubelets(api, stage.agents):
            yield stage


async def _are_known(stage: RealStage, names: Sequence[str]) -> bool:
    """Whether the nodes are Ready, and Kubernetes has removed its taint of new nodes, which happens a moment
    later."""
    ready = {
        node["metadata"]["name"]
        for node in await stage.all(NODES)
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        and not node["spec"].get("taints")
    }
    with_health = {health["metadata"]["name"] for health in await stage.all(NODEHEALTHS)}
    return set(names) <= ready & with_health


async def _has_account(stage: RealStage) -> bool:
    """Whether the namespace has the account `default`, which Kubernetes creates a moment after the namespace.
    Until then the API server refuses pods."""
    names = [account["metadata"]["name"] for account in await stage.all(_ACCOUNTS, NAMESPACE)]
    return "default" in names


async def _all_covered(stage: RealStage) -> bool:
    for node in stage.agents:
        rows = (await stage.health(node)).coverage
        if not any(row.source is Source.KMSG and row.state is CoverageState.COVERED for row in rows):
            return False
    return True


async def _there(api: KubeApi, resource: Resource, body: Any) -> None:
    with contextlib.suppress(ApiError):
        await api.request("POST", resource.path(), body=body)
