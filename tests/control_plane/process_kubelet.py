"""The kubelet of the playground's nodes: it runs a process for each container that KWOK only plays.

Rekindle's own pods run the program of this working tree, with the settings and the account of their pod. All
other pods, which are training ranks and scan pods, run their command by the demo's runtime
(chaos/cluster/process_runtime.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos.apiserver.store import MemoryCluster
from chaos.cluster.containers import ContainerRun, Exit, StartError, environment_of, expanded
from chaos.cluster.host import Host
from chaos.cluster.process_runtime import ProcessRuntime
from chaos.processes.children import Child, spawn
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.wire.resource import MergePatch
from recover.k8s.kinds import CONFIGMAPS, PODS
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import AGENT, SYSTEM, token

__all__ = ["ProcessKubelet"]

WATCH_S = 600.0
AGAIN_S = 0.5
RESTART_S = 1.0
GRACE_S = 10.0
_HERE = {"/etc/rekindle/": "settings", "/etc/rekindle-repair/": "repair"}
"""Mount paths of the ConfigMaps `rekindle-...` in Rekindle's pods, with the rest of the ConfigMap's name."""


class ProcessKubelet:
    """A kubelet whose `run` follows the pods of the nodes in `hosts` until it is cancelled. Then every
    process has ended."""

    def __init__(
        self,
        api: KubeApi,
        plane: ControlPlane,
        hosts: Mapping[str, Host],
        volumes: Mapping[str, Path],
        logs: Path,
    ) -> None:
        self._api = api
        self._plane = plane
        self._hosts = hosts
        self._logs = logs
        self._runtime = ProcessRuntime(hosts, volumes, now)
        self._pods: dict[str, asyncio.Task[None]] = {}
        """Tasks by the pod's uid, from the start of the pod's process to the removal of the pod."""
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        """The last task of each namespace and pod name."""

    async def run(self) -> None:
        try:
            while True:
                with contextlib.suppress(ApiError, ReplyLost):
                    async for event in self._api.watch(
                        PODS.path(), params={}, timeout_s=WATCH_S, silence_s=WATCH_S
                    ):
                        self._take(event.type, msgspec.json.decode(event.object))
                await asyncio.sleep(AGAIN_S)
        finally:
            for task in self._pods.values():
                task.cancel()
            await asyncio.gather(*self._pods.values(), return_exceptions=True)
            await self._runtime.close()

    def runs(self, namespace: str, name: str) -> bool:
        """Whether the process of that pod runs."""
        task = self._tasks.get((namespace, name))
        return task is not None and not task.done()

    def _take(self, event: str, pod: Any) -> None:
        uid, host = pod["metadata"]["uid"], self._hosts.get(pod["spec"].get("nodeName", ""))
        if host is None:
            return
        if event == "DELETED":
            if uid in self._pods:
                self._pods.pop(uid).cancel()
            self._runtime.kill(uid, Exit.by_signal(signal.SIGKILL))
            self._runtime.forget(pod["spec"]["nodeName"], pod)
        elif "deletionTimestamp" in pod["metadata"]:
            self._runtime.send(uid, signal.SIGTERM)
        elif pod["status"].get("phase") == "Running" and uid not in self._pods:
            meta = pod["metadata"]
            running = self._run_ours(pod, host) if meta["namespace"] == SYSTEM else self._run(pod)
            task = asyncio.create_task(running)
            self._pods[uid] = self._tasks[meta["namespace"], meta["name"]] = task

    async def _run(self, pod: Any) -> None:
        """Runs the first container once, and reports to the API server how the container ended."""
        container = pod["spec"]["containers"][0]
        try:
            environment = await self._environment(pod, container)
            own = {
                **container,
                "command": [expanded(part, environment) for part in container.get("command", [])],
                "args": [expanded(part, environment) for part in container.get("args", [])],
            }
            run = ContainerRun(pod["spec"]["nodeName"], pod, own, environment, 0)
            ended = await asyncio.shield(await self._runtime.start(run))
        except StartError as error:
            ended = Exit(128, reason=error.reason, message=str(error))
        await self._report(pod, ended.code, ended.message)

    async def _environment(self, pod: Any, container: Any) -> dict[str, str]:
        """Returns the environment of the container. ConfigMaps are read here; everything else that
        `environment_of` needs is in the pod."""
        given: list[dict[str, str]] = []
        for source in container.get("envFrom", []):
            data = await self._config_map(source["configMapRef"]["name"], pod["metadata"]["namespace"])
            given += [{"name": name, "value": value} for name, value in data.items()]
        plain = {**container, "envFrom": [], "env": [*given, *container.get("env", [])]}
        return environment_of(pod, plain, MemoryCluster(now))

    async def _config_map(self, name: str, namespace: str) -> dict[str, str]:
        """Returns the data of the ConfigMap, or an empty mapping if the ConfigMap is missing."""
        try:
            raw = await self._api.request("GET", CONFIGMAPS.path(name, namespace))
        except ApiError as error:
            if not error.not_found:
                raise
            return {}
        return dict(msgspec.json.decode(raw).get("data", {}))

    async def _run_ours(self, pod: Any, host: Host) -> None:
        """Runs a pod of Rekindle. A pod of a Job or of `helm test` ends with its process; every other process
        is restarted."""
        name = pod["metadata"]["name"]
        while True:
            child = await spawn(name, await self._command(pod, host), self._logs / f"{name}.log")
            try:
                status = await child.process.wait()
            finally:
                await _stopped(child)
            if pod["spec"]["restartPolicy"] == "Never":
                await self._report(pod, status)
                return
            await asyncio.sleep(RESTART_S)

    async def _command(self, pod: Any, host: Host) -> list[str]:
        """Returns the pod's command, with the address, the token and the folders of this machine."""
        # The folders of the node are removed with the pod, but a process that is ending still needs its
        # token.
        own = self._plane.folder / "pods" / pod["metadata"]["uid"]
        account = pod["spec"]["serviceAccountName"]
        # A controller that ends writes once more after KWOK has removed its pod, so its token is not bound to
        # the pod.
        text = await token(self._api, account, pod=pod if account == AGENT else None)
        paths = {"/host": str(host.root)}
        for path, part in _HERE.items():
            folder = own / part
            folder.mkdir(parents=True, exist_ok=True)
            paths[path] = f"{folder}/"
            for key, value in (await self._config_map(f"rekindle-{part}", SYSTEM)).items():
                (folder / key).write_text(
                    value.replace("/etc/rekindle-repair/", f"{own}/repair/"), encoding="utf-8"
                )
        (own / "token").write_text(text, encoding="utf-8")
        environment = {"POD_NAME": pod["metadata"]["name"]}
        args = [expanded(one, environment) for one in pod["spec"]["containers"][0]["args"]]
        args = [one for one in args if not one.startswith("--listen")]
        for path, there in paths.items():
            args = [one.replace(f"={path}", f"={there}") for one in args]
        command = [sys.executable, "-m", "detectors.commands.main", *args, "--server", self._plane.url]
        command += ["--ca-file", str(self._plane.ca_file), "--token-file", str(own / "token")]
        if args[0] in ("agent", "controller"):
            command += ["--listen", "127.0.0.1:0"]
        if args[0] == "agent":  # the agent must not read a GPU of this machine
            command += ["--node", pod["spec"]["nodeName"], "--set", "nvml.enabled=false"]
        return command

    async def _report(self, pod: Any, code: int, message: str = "") -> None:
        """Reports how the pod ended, unless the pod is gone or KWOK has reported its end."""
        terminated = {
            "exitCode": code,
            "finishedAt": now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "message": message,
        }
        container = {"name": pod["spec"]["containers"][0]["name"], "image": "none", "imageID": ""}
        state = {"ready": False, "restartCount": 0, "state": {"terminated": terminated}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**container, **state}]}
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        path = PODS.path(meta["name"], meta["namespace"], "status")
        with contextlib.suppress(ApiError, ReplyLost):
            await self._api.request("PATCH", path, body=body, content_type=MergePatch)


async def _stopped(child: Child) -> None:
    """Stops the process before the task ends, even if the task is cancelled."""
    await asyncio.shield(child.stop(GRACE_S))


def now() -> datetime:
    return datetime.now(UTC)
