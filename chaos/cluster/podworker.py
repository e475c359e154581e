"""One pod's life on its node: the worker starts the containers, restarts, reports and ends them, and confirms
the deletion. A kubelet has one worker for each pod; the worker ends when the pod's object is gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from datetime import datetime

import msgspec

from chaos.apiserver.client import Client
from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.containers import ContainerRun, Exit, Runtime, StartError, environment_of, expanded
from chaos.cluster.podstatus import ContainerState, pod_status, restarts_after
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import JsonPatch
from recover.k8s.kinds import PODS

__all__ = ["KubeletSettings", "PodWorker"]

LOST = Exit(137, reason="ContainerStatusUnknown", message="the machine went down while the container ran")
NEVER_STARTED = Exit(137, reason="ContainerStatusUnknown")


class KubeletSettings(msgspec.Struct, frozen=True):
    """Times of the kubelet in seconds; the defaults are Kubernetes'. The wait before a restart doubles each
    time."""

    heartbeat_s: float = 10.0
    restart_backoff_s: float = 10.0
    restart_backoff_max_s: float = 300.0
    config_retry_s: float = 2.0


class PodWorker:
    """`deleted` is set by the kubelet when it sees that the pod is to be deleted; `now` is its machine's
    clock."""

    def __init__(
        self,
        node: str,
        pod: Object,
        store: MemoryCluster,
        api: Client,
        runtime: Runtime,
        settings: KubeletSettings,
        now: Callable[[], datetime],
    ) -> None:
        self.deleted = asyncio.Event()
        self._node = node
        self._pod = pod
        self._uid = str(pod["metadata"]["uid"])
        self._store = store
        self._api = api
        self._runtime = runtime
        self._settings = settings
        self._now = now
        self._states = [_state_at_boot(pod, container) for container in pod["spec"]["containers"]]

    async def run(self) -> None:
        """Runs the containers to their end. Then the pod's object and logs stay until the pod is deleted."""
        ending = asyncio.create_task(self._end_when_deleted())
        try:
            async with asyncio.TaskGroup() as group:
                for container, state in zip(self._pod["spec"]["containers"], self._states, strict=True):
                    group.create_task(self._run_container(container, state))
            await self.deleted.wait()
        finally:
            ending.cancel()
        await self._confirm_deletion()

    async def _run_container(self, container: Object, state: ContainerState) -> None:
        """Runs one container through all its restarts, until it has ended permanently."""
        policy, backoff_s = self._pod["spec"]["restartPolicy"], self._settings.restart_backoff_s
        while True:
            if state.ended is None:
                await self._run_once(container, state)
            state.running = False
            state.ended_at = state.ended_at or self._now()
            assert state.ended is not None
            if self.deleted.is_set() or not restarts_after(policy, state.ended.code):
                state.for_good = True
                await self._report()
                return
            state.last, state.ended, state.ended_at = state.terminated(), None, None
            state.restarts += 1
            state.waiting = ("CrashLoopBackOff", f"back-off {backoff_s:g}s restarting failed container")
            await self._report()
            await self._pause(backoff_s)
            backoff_s = min(2 * backoff_s, self._settings.restart_backoff_max_s)

    async def _run_once(self, container: Object, state: ContainerState) -> None:
        """Starts the container as soon as that is possible, and waits for its end."""
        ended = NEVER_STARTED
        while not self.deleted.is_set():
            try:
                run = self._prepared(container, state.restarts)
                ending = await self._runtime.start(run)
            except StartError as error:
                state.waiting = (error.reason, error.message)
                await self._report()
                await self._pause(self._settings.config_retry_s)
                continue
            state.container_id, state.started_at, state.running = run.container_id, self._now(), True
            if self.deleted.is_set():  # between the check above and the start
                self._runtime.send(self._uid, signal.SIGTERM)
            await self._report()
            ended = await asyncio.shield(ending)  # the runtime's future outlives a crash of the node
            break
        state.ended, state.ended_at = ended, self._now()

    def _prepared(self, container: Object, restart: int) -> ContainerRun:
        environment = environment_of(self._pod, container, self._store)
        own = {
            **container,
            "command": [expanded(part, environment) for part in container.get("command", [])],
            "args": [expanded(part, environment) for part in container.get("args", [])],
        }
        return ContainerRun(self._node, self._pod, own, environment, restart)

    async def _pause(self, delay_s: float) -> None:
        """Sleeps, but not past the pod's deletion."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self.deleted.wait()

    async def _end_when_deleted(self) -> None:
        await self.deleted.wait()
        self._runtime.send(self._uid, signal.SIGTERM)
        meta = self._pod["metadata"]
        try:
            current = self._store.read(PODS, meta["name"], meta["namespace"]).body["metadata"]
        except ApiError:  # the pod was removed by force
            return
        await asyncio.sleep(current.get("deletionGracePeriodSeconds", 0))
        self._runtime.kill(self._uid, Exit.by_signal(9))

    async def _confirm_deletion(self) -> None:
        meta = self._pod["metadata"]
        with contextlib.suppress(ApiError):  # gone already
            await self._api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=self._uid, grace_s=0)

    async def _report(self) -> None:
        """Writes the fields of the status that the kubelet owns. A pod that is gone needs no report."""
        meta = self._pod["metadata"]
        try:
            current = self._store.read(PODS, meta["name"], meta["namespace"]).body
            status = {**current["status"], **pod_status(current, self._states, self._now())}
            await self._api.patch(
                PODS,
                meta["name"],
                [
                    {"op": "test", "path": "/metadata/uid", "value": self._uid},
                    {"op": "replace", "path": "/status", "value": status},
                ],
                namespace=meta["namespace"],
                subresource="status",
                patch_type=JsonPatch,
            )
        except ApiError as error:
            if not (error.not_found or error.stale):
                raise


def _state_at_boot(pod: Object, container: Object) -> ContainerState:
    """Returns the state of the container at the boot. A container that ran when the machine went down is
    lost; one that had ended before keeps its end."""
    state = ContainerState(container["name"])
    statuses = pod.get("status", {}).get("containerStatuses", [])
    old = next((status for status in statuses if status["name"] == container["name"]), None)
    if old is None:
        return state
    state.restarts = old["restartCount"]
    state.container_id = str(old.get("containerID", "")).removeprefix("containerd://")
    if (end := old["state"].get("terminated")) is not None:
        state.ended = Exit(end["exitCode"], end.get("signal", 0), end["reason"], end.get("message", ""))
        state.started_at = datetime.fromisoformat(end["startedAt"])
        state.ended_at = datetime.fromisoformat(end["finishedAt"])
    elif "running" in old["state"]:
        state.ended = LOST
    return state
