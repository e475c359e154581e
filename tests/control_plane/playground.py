"""The playground of docs/playground.md, which `python -m tests.control_plane.up --rekindle` starts.

It is a real control plane with GPU nodes that KWOK plays, Rekindle installed by Helm, and a training job. The
containers of Rekindle and of the job are processes of this machine (process_kubelet.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from chaos.cluster.host import Host
from chaos.scenarios.manifests import CHECKPOINTS, CLAIM, NAMESPACE, training_job
from chaos.scenarios.scenario import Job, JobKind
from chaos.training.launch import free_port
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, NAMESPACES, NODEHEALTHS, NODES, PYTORCHJOBS
from tests.control_plane.build import Programs
from tests.control_plane.plane import ControlPlane, PlaneError
from tests.control_plane.pod_logs import kubelet_port
from tests.control_plane.process_kubelet import ProcessKubelet, now
from tests.control_plane.rights import SYSTEM

__all__ = ["playground"]

ROOT = Path(__file__).parents[2]
JOB = "llm"
GPU_NODES = 6
RANKS = 4
START_S = 180.0
REGISTRY = "localhost"
"""Registry of the images. No image is pulled, because KWOK starts no container."""
_FOLDERS = ("sys/class", "sys/fs/pstore", "var/lib/systemd/pstore", "var/lib/kubelet/pods")
"""Folders of a machine that `Host` does not create. Without them the agent reports that it cannot read
them."""
_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


async def playground(programs: Programs, plane: ControlPlane, *, training: bool) -> None:
    """Runs until SIGINT or SIGTERM. With `training` the job is a PyTorchJob. Raises PlaneError."""
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # the children get them, too
    raised = asyncio.create_task(_raised(programs, plane, training=training))
    stopped = asyncio.create_task(ending.wait())
    await asyncio.wait({raised, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    raised.cancel()
    with suppress(asyncio.CancelledError):
        await raised


async def _raised(programs: Programs, plane: ControlPlane, *, training: bool) -> None:
    """Runs until it is cancelled, and then ends every process. It must be cancelled only once: a second
    cancellation ends the wait for those processes, which would write further files."""
    folders = [plane.folder / name for name in ("bin", "logs", "checkpoints")]
    for folder in folders:
        folder.mkdir()
    binaries, logs, checkpoints = folders
    _lay_commands(programs, plane, binaries)
    hosts = {
        f"gpu-{number}": Host(plane.folder / "nodes" / f"gpu-{number}", f"gpu-{number}", 1, now)
        for number in range(1, GPU_NODES + 1)
    }
    hosts["cpu-1"] = Host(plane.folder / "nodes" / "cpu-1", "cpu-1", 0, now)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(KubeApi(plane.credentials(), timeout_s=30.0))
        kubelet = ProcessKubelet(api, plane, hosts, {CLAIM: checkpoints}, logs)
        port = await stack.enter_async_context(kubelet_port(plane, hosts, logs, kubelet.runs))
        for name, host in hosts.items():
            boot_id = str(uuid.uuid4())
            host.boot(boot_id)
            for missing in _FOLDERS:
                (host.root / missing).mkdir(parents=True, exist_ok=True)
            await _created(api, NODES, _node(name, boot_id, len(host.gpus), port))
        stack.push_async_callback(_cancelled, asyncio.create_task(kubelet.run()))
        _say("installing Rekindle by Helm, mode observe ...")
        await _helm(
            binaries,
            plane,
            f"install rekindle charts/rekindle -n {SYSTEM} --create-namespace "
            f"--set image.registry={REGISTRY} --set settings.agent.nvml.enabled=false --wait --timeout 180s",
        )
        await _until("NodeHealths of all GPU nodes", lambda: _reporting(api))
        await _namespace_with_volume(api)
        await _created(api, PYTORCHJOBS if training else JOBS, _job(training=training), NAMESPACE)
        _say_what_to_do(plane, binaries, logs)
        await asyncio.Event().wait()


def _lay_commands(programs: Programs, plane: ControlPlane, folder: Path) -> None:
    """Creates the commands in the printed PATH: kubectl, helm, rekindle, and `xid`, which breaks a GPU."""
    (folder / "kubectl").symlink_to(programs.path("kubectl"))
    (folder / "helm").symlink_to(programs.path("helm4"))
    (folder / "rekindle").symlink_to(Path(sys.executable).parent / "rekindle")
    script = folder / "xid"
    script.write_text(
        f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m tests.control_plane.xid '
        f'"{plane.folder / "nodes"}" "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)


def _node(name: str, boot_id: str, gpus: int, port: int) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    labels = {"type": "kwok", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    labels |= {"nvidia.com/gpu.present": "true"} if gpus else {}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {
            "allocatable": room,
            "capacity": room,
            "nodeInfo": {"bootID": boot_id},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    }


async def _helm(binaries: Path, plane: ControlPlane, arguments: str) -> None:
    """Runs Helm without the user's own settings and caches. Raises PlaneError with Helm's output."""
    process = await asyncio.create_subprocess_exec(
        str(binaries / "helm"),
        *arguments.split(),
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig()), "HOME": str(plane.folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise PlaneError(f"helm {arguments}: exit {process.returncode}:\n{output.decode(errors='replace')}")


async def _reporting(api: KubeApi) -> bool:
    """Whether every agent has written its NodeHealth."""
    try:
        items = msgspec.json.decode(await api.request("GET", NODEHEALTHS.path()))["items"]
    except ApiError as error:
        if error.status not in (404, 429):  # until the API server serves the new kind
            raise
        return False
    return sum(1 for item in items if item.get("status", {}).get("coverage")) == GPU_NODES


async def _namespace_with_volume(api: KubeApi) -> None:
    """Creates the job's namespace, and the claim of its checkpoints with the volume behind the claim."""
    await _created(api, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **common,
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
        "nfs": {"server": "nfs.example", "path": CHECKPOINTS},
    }
    await _created(api, _VOLUMES, {"metadata": {"name": CLAIM}, "spec": volume})
    claim = {**common, "volumeName": CLAIM, "resources": {"requests": {"storage": "1Gi"}}}
    await _created(api, _CLAIMS, {"metadata": {"name": CLAIM}, "spec": claim}, NAMESPACE)
    await _until("account `default` of the job's namespace", lambda: _has_account(api))


async def _has_account(api: KubeApi) -> bool:
    try:
        await api.request("GET", _ACCOUNTS.path("default", NAMESPACE))
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True


def _job(*, training: bool) -> dict[str, Any]:
    """Returns a job that trains for about a day, one step each second, and saves a checkpoint every 20
    steps."""
    kind = JobKind.PYTORCHJOB if training else JobKind.JOB
    shape = Job(kind=kind, ranks=RANKS, steps=86_400, step_time_s=1.0, checkpoint_every=20)
    body = training_job(shape, JOB, free_port())
    replicas = body["spec"]["pytorchReplicaSpecs"].values() if training else [body["spec"]]
    for replica in replicas:
        template = replica["template"]
        template["metadata"] = {"annotations": {"dying": "143"}}  # as under a kubelet: see dying.yaml
        template["spec"] = {**template["spec"], "automountServiceAccountToken": False}
        if training:  # no name server here resolves the operator's Service
            (container,) = template["spec"]["containers"]
            template["spec"]["containers"] = [
                {**container, "args": [*container["args"], "--master-addr=127.0.0.1"]}
            ]
    return body


async def _created(api: KubeApi, resource: Resource, body: dict[str, Any], namespace: str = "") -> None:
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    await api.request("POST", resource.path(namespace=namespace), body=typed)


async def _until(what: str, found: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(START_S):
            while not await found():
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise PlaneError(f"no {what} within {START_S:g} s") from None


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _say_what_to_do(plane: ControlPlane, binaries: Path, logs: Path) -> None:
    """Prints the exports to standard output, for `eval`, and the rest to standard error."""
    print(f"export KUBECONFIG={plane.kubeconfig()}")
    print(f"export PATH={binaries}:$PATH", flush=True)
    _say(f"The training job is {NAMESPACE}/{JOB}. Run the two exports in another terminal, in the folder of")
    _say("this repository. docs/playground.md says what to try there. Ctrl-C ends the playground.")
    _say(f"Rekindle's logs are in {logs}, the files of the nodes in {plane.folder / 'nodes'}.")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
