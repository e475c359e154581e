"""A recovery while the API server, etcd or the connection to them fails, on a separate control plane.

REKINDLE_OUTAGE_S sets how many seconds each disturbance lasts (default 10). The long variants are a minute of
a dead API server or etcd, and five minutes of cut connections:

    REKINDLE_CONTROL_PLANE=1 REKINDLE_OUTAGE_S=60 pytest -s -k killed tests/control_plane/test_outages.py
    REKINDLE_CONTROL_PLANE=1 REKINDLE_OUTAGE_S=300 pytest -s -k cut tests/control_plane/test_outages.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from recover.checkpoints.scan_result import Checkpoint, ScanMessage, encode_message
from recover.k8s.kinds import CONFIGMAPS, JOBS, NODES, PODS, RECOVERIES
from tests.control_plane.build import cached
from tests.control_plane.cases import IN_STEP
from tests.control_plane.controllers import SHIPPED_LEASE
from tests.control_plane.interference import Container, Wire, beside, kept_running, pss_bytes, wired
from tests.control_plane.plane import ControlPlane, Program, started
from tests.control_plane.stage import ANSWERED_S, NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

OUTAGE_S = float(os.environ.get("REKINDLE_OUTAGE_S", "10"))
SILENCE_S = 8
"""Silence in seconds after which a node is not ready. An outage is longer, so after it all nodes seem to have
been silent for too long."""
CUT_EVERY_S = 1.0
LIMIT_S = 240.0
"""Time limit in seconds, longer than the sum of what may follow an outage: a lease that must expire, a
kubelet's pause, a backoff."""
REQUESTS_PER_S_MAX = 22.0
GROWTH_BYTES_MAX = 16 * 1024 * 1024
CHOSEN = Checkpoint(step=90, path="step-90", format="rekindle-sharded", complete=True, reason="", bytes=1)
JOB: dict[str, Any] = {
    "metadata": {
        "name": "llm",
        "labels": {"rekindle.dev/auto-recovery": "enabled"},
        "annotations": {"rekindle.dev/checkpoint": "/checkpoints;format=rekindle-sharded"},
    },
    "spec": {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "volumes": [{"name": "checkpoints", "nfs": {"server": "nfs.example", "path": "/llm"}}],
                "containers": [
                    {
                        "name": "train",
                        "image": "none",
                        "resources": {"limits": {"nvidia.com/gpu": "8"}},
                        "envFrom": [{"configMapRef": {"name": "llm-rekindle-job", "optional": True}}],
                        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                    }
                ],
            }
        },
    },
}

PROBE: dict[str, Any] = {
    "metadata": {"name": "probe"},
    "spec": {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}},
    },
}
"""A Job without pods: the Job controller only writes its condition `Suspended`."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with started(cached(), controllers=True, silence_s=SILENCE_S) as own:
        yield own


async def test_the_api_server_is_killed_while_the_first_step_is_awaited(plane: ControlPlane) -> None:
    """The rank makes its first step while the agent cannot report it: the agent keeps the step."""
    async with training(plane) as gang:
        await gang.loses_a_gpu()
        await gang.chooses()
        new = await gang.until("new pods", gang.new_pods)

        killed = plane.programs["kube-apiserver"]
        await gang.outage("API server dead", killed, meanwhile=lambda: gang.prints(new[0]))

        await gang.ends_well()


async def test_etcd_is_killed_while_the_scan_chooses(plane: ControlPlane) -> None:
    async with training(plane) as gang:
        await gang.loses_a_gpu()
        await gang.until("running scan pod", gang.running_scan)

        await gang.outage("etcd dead", plane.programs["etcd"])

        await gang.chooses()
        await gang.steps_on()
        await gang.ends_well()


async def test_all_connections_of_controller_and_agents_are_cut_each_second(plane: ControlPlane) -> None:
    async with training(plane) as gang, gang.cut_each_second("connections cut each second"):
        await asyncio.sleep(OUTAGE_S / 3)
        await gang.loses_a_gpu()
        await gang.chooses()
        await asyncio.sleep(OUTAGE_S / 3)
        await gang.steps_on()
        await gang.rest_of_the_disturbance()
        await gang.ends_well()


class Gang:
    """A job of two ranks at step 100, with the faults and disturbances of a test. `stage` reaches the API
    server directly."""

    def __init__(self, stage: RealStage, container: Container, controller: Wire, agents: Wire) -> None:
        self.stage = stage
        self._container = container
        self._controller = controller
        self._agents = agents
        self._old: list[Any] = []
        self._bad = ""
        self._disturbed_until = 0.0
        self._memory_bytes = 0

    async def begins(self) -> None:
        await self.stage.create(JOBS, JOB, NAMESPACE)
        self._old = await self.stage.running("llm", 2)
        for pod in self._old:
            await self.stage.steps(pod, first=1, last=100)
        await self.stage.until("controller in step", self._in_step)
        self._memory_bytes = pss_bytes(self._container.child)

    async def _in_step(self) -> bool:
        return IN_STEP in self._container.child.log.read_text(encoding="utf-8")

    async def loses_a_gpu(self) -> None:
        self._bad = self._old[0]["spec"]["nodeName"]
        await self.stage.xid_79(self._bad)

    async def chooses(self) -> None:
        """The scan names the checkpoint of step 90."""
        scan = await self.until("running scan pod", self.running_scan)
        message = encode_message(ScanMessage(chosen=CHOSEN, found=1))
        await self.stage.end(scan, exit_code=0, message=message)

    async def steps_on(self) -> None:
        self.prints((await self.until("new pods", self.new_pods))[0])

    def prints(self, pod: Any) -> None:
        self.stage.agents[pod["spec"]["nodeName"]].prints(pod, ["step 91 loss 0.3", "step 92 loss 0.3"])

    async def ends_well(self) -> None:
        """Asserts one stop, one resume from the right checkpoint, and the quarantine of the bad node only."""
        recovery = await self.until("Succeeded", self._succeeded)
        status, job = recovery["status"], await self.stage.get(JOBS, "llm", NAMESPACE)
        assert (status["attempt"], status["checkpoint"]["step"], status["resumedStep"]) == (1, 90, 91)
        assert (job["spec"]["suspend"], job["metadata"]["generation"]) == (False, 3)
        entered = " ".join(phase["phase"] for phase in status["phases"])
        # After an outage Kubernetes considers all nodes silent for a moment, and then no rank has a place.
        for waited in (" Blocked Resuming", " Blocked"):
            entered = entered.replace(waited, "")
        assert entered == "Stopping Choosing Resuming Verifying Succeeded"
        told = (await self.stage.get(CONFIGMAPS, "llm-rekindle-job", NAMESPACE))["data"]
        assert told == {"REKINDLE_RECOVERY": recovery["metadata"]["name"]}
        nodes = await self.stage.all(NODES)
        assert [n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")] == [self._bad]
        await self._rests()

    async def outage(self, what: str, program: Program, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kills the program, and starts it again with its data after OUTAGE_S."""
        program.kill()
        async with self._measured(what):
            await asyncio.sleep(OUTAGE_S / 2)
            meanwhile()
            await asyncio.sleep(OUTAGE_S / 2)
        program.start()
        await self.until("answer of the API server", lambda: self.stage.get(NODES, self._bad))

    @asynccontextmanager
    async def cut_each_second(self, what: str) -> AsyncIterator[None]:
        self._disturbed_until = time.monotonic() + OUTAGE_S

        async def cutting() -> None:
            async with self._measured(what):
                while time.monotonic() < self._disturbed_until:
                    await asyncio.sleep(CUT_EVERY_S)
                    self._controller.cut()
                    self._agents.cut()

        async with asyncio.TaskGroup() as group:
            group.create_task(cutting())
            yield

    async def rest_of_the_disturbance(self) -> None:
        await asyncio.sleep(max(0.0, self._disturbed_until + CUT_EVERY_S - time.monotonic()))

    async def until(self, what: str, found: Callable[[], Awaitable[Any]]) -> Any:
        """Does the same as the stage's `until`, and also waits for an API server that does not answer."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    with contextlib.suppress(ApiError, ReplyLost):
                        if answer := await found():
                            return answer
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"no {what} within {LIMIT_S:g} s\n{self._container.child.last_lines(25)}")

    async def job_controller_in_step(self) -> bool:
        """Whether the watches of the Job controller have returned, which happens long after the API server
        has. Until then the Job controller creates the pods of a removed Job once more, and the next test
        would take these pods for those of its own Job of that name."""
        with contextlib.suppress(ApiError):  # exists from the previous call
            await self.stage.create(JOBS, PROBE, NAMESPACE)
        probe = await self.stage.get(JOBS, PROBE["metadata"]["name"], NAMESPACE)
        return any(condition["type"] == "Suspended" for condition in probe["status"].get("conditions", []))

    async def running_scan(self) -> Any:
        scans = await self.stage.all(PODS, NAMESPACE, "rekindle.dev/scan-of")
        return next((scan for scan in scans if scan["status"]["phase"] == "Running"), None)

    async def new_pods(self) -> list[Any]:
        """Returns the new pods of both ranks if they run, otherwise an empty list."""
        old = {pod["metadata"]["uid"] for pod in self._old}
        pods = await self.stage.all(PODS, NAMESPACE, "batch.kubernetes.io/job-name=llm")
        new = [p for p in pods if p["metadata"]["uid"] not in old and p["status"]["phase"] == "Running"]
        return new if len(new) == len(old) else []

    async def _succeeded(self) -> Any:
        (recovery,) = await self.stage.all(RECOVERIES, NAMESPACE)
        return recovery if recovery["status"].get("phase") == "Succeeded" else None

    async def _rests(self) -> None:
        """Prints how many requests the controller still sends and how much memory it needs. The memory must
        not have grown."""
        async with self._measured("afterwards"):
            await asyncio.sleep(3)
        now_bytes = pss_bytes(self._container.child)
        print(
            f"controller: {self._memory_bytes / 2**20:.1f} MiB before, {now_bytes / 2**20:.1f} MiB after, "
            f"restarted {self._container.restarts} times"
        )
        assert now_bytes - self._memory_bytes < GROWTH_BYTES_MAX

    @asynccontextmanager
    async def _measured(self, what: str) -> AsyncIterator[None]:
        """Prints the controller's requests per second while the block runs, and asserts that there is no hot
        loop."""
        asked, began_at = self._controller.asked, time.monotonic()
        yield
        took_s = time.monotonic() - began_at
        per_s = (self._controller.asked - asked) / took_s
        print(f"\n{what}, {took_s:.0f} s: at most {per_s:.1f} requests/s of the controller")
        assert per_s < REQUESTS_PER_S_MAX


@asynccontextmanager
async def training(plane: ControlPlane) -> AsyncIterator[Gang]:
    """Controller and agents reach the API server over separate wires. The controller is restarted whenever it
    ends."""
    async with contextlib.AsyncExitStack() as stack:
        agents, seen_by_agents = await stack.enter_async_context(wired(plane))
        controller, seen_by_controller = await stack.enter_async_context(wired(plane))
        stage = await stack.enter_async_context(
            raised(seen_by_agents, nodes=3, settings=["mode=recover", *SHIPPED_LEASE])
        )
        stage.api = await stack.enter_async_context(KubeApi(plane.credentials(), timeout_s=ANSWERED_S))
        command = beside(stage.controller, seen_by_agents, seen_by_controller)
        await stage.controller.stop()
        log = plane.folder / "kept-controller.log"
        log.unlink(missing_ok=True)
        container = await stack.enter_async_context(kept_running(command, log))
        gang = Gang(stage, container, controller, agents)
        await gang.begins()
        yield gang
        await gang.until("answer of the Job controller", gang.job_controller_in_step)
