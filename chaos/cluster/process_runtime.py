"""Containers as real local processes: their output in CRI logs, a cgroup folder while they live, signals as a
kubelet sends them. The runtime needs no privileges, so there is no isolation: it is for Rekindle's own test
programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from chaos.apiserver.kinds import Object
from chaos.cluster.containers import ContainerRun, Exit, StartError
from chaos.cluster.crilog import CriLog
from chaos.cluster.host import Host
from chaos.cluster.rewriting import mounts_of, rewritten
from chaos.processes.children import die_with
from recover.recovery.scan_spec import PROGRAM

__all__ = ["ProcessRuntime"]

MESSAGE_BYTES_MAX = 4096
READ_BYTES = 64 * 1024
MARK = "CONTAINER_FILES"
"""Variable by which a container's processes are distinguished from all others of this machine. Its value is a
path, because ids are the same in every cluster, and several clusters may run at once."""


class _Container:
    """One running process, which leads its own session and process group."""

    def __init__(self, process: asyncio.subprocess.Process, message: Path) -> None:
        self.process = process
        self.message = message
        self.forced: Exit | None = None
        self.ending: asyncio.Task[Exit] | None = None

    def signal(self, number: int) -> None:
        """Sends the signal to the whole group, which may outlive its leader."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        """Kills every process, as the end of a container's PID namespace does, including processes of other
        groups."""
        self.signal(signal.SIGKILL)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Returns the ids of all processes, including those that have left the group, as torchrun's workers
        do."""
        line = f"\0{MARK}={self.message}\0".encode()
        return [
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if line in _bytes(path)
        ]


class ProcessRuntime:
    """`volumes` has the folder behind each PersistentVolumeClaim."""

    def __init__(
        self, hosts: Mapping[str, Host], volumes: Mapping[str, Path], now: Callable[[], datetime]
    ) -> None:
        self._hosts = hosts
        self._volumes = volumes
        self._now = now
        self._running: dict[str, dict[str, _Container]] = {}
        self._forgotten: dict[str, Host] = {}

    async def start(self, run: ContainerRun) -> asyncio.Future[Exit]:
        host = self._hosts[run.node]
        own = host.pod_folder(run.uid)
        mounts = mounts_of(run.pod, run.container, host, self._volumes)
        message = own / "containers" / run.name / str(run.restart)
        message.parent.mkdir(parents=True, exist_ok=True)
        message.write_bytes(b"")
        mounts[run.container["terminationMessagePath"]] = message
        mounts[PROGRAM] = Path(sys.executable).parent / "rekindle"
        arguments = [rewritten(part, mounts) for part in (*run.container["command"], *run.container["args"])]
        if not arguments:
            raise StartError(
                "CreateContainerError", "no command: a local process has no image to take one from"
            )
        environment = {name: rewritten(value, mounts) for name, value in run.environment.items()}
        folder = rewritten(run.container.get("workingDir", ""), mounts) or str(own)
        parent = os.getpid()
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env={**_base_environment(run.pod, own), **environment, MARK: str(message)},
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        except OSError as error:
            raise StartError("RunContainerError", f"{arguments[0]}: {error}") from error
        container = _Container(process, message)
        self._running.setdefault(run.uid, {})[run.name] = container
        container.ending = asyncio.create_task(self._attend(run, container, host))
        return container.ending

    async def _attend(self, run: ContainerRun, container: _Container, host: Host) -> Exit:
        """Copies the output until the process has ended. After that only its log is left."""
        process = container.process
        cgroup = host.cgroup(run.uid, run.container_id)
        cgroup.mkdir(parents=True, exist_ok=True)
        (cgroup / "cgroup.procs").write_text(f"{process.pid}\n", encoding="ascii")
        log = CriLog(host.log_folder(run.pod) / run.name / f"{run.restart}.log", self._now)
        assert process.stdout is not None
        assert process.stderr is not None
        copies = [
            asyncio.create_task(_copy(process.stdout, "stdout", log)),
            asyncio.create_task(_copy(process.stderr, "stderr", log)),
        ]
        code = await process.wait()
        container.kill()  # processes that it left behind end with the container
        await asyncio.gather(*copies)
        log.close()
        shutil.rmtree(cgroup, ignore_errors=True)
        del self._running[run.uid][run.name]
        message = _message(container.message)
        if not self._running[run.uid]:
            del self._running[run.uid]
            if run.uid in self._forgotten:
                self._forgotten.pop(run.uid).forget(run.pod)
        ended = container.forced or (Exit(code) if code >= 0 else Exit.by_signal(-code))
        return Exit(ended.code, ended.signal, ended.reason, message)

    def kill(self, pod_uid: str, ended: Exit) -> None:
        for container in self._running.get(pod_uid, {}).values():
            if container.process.returncode is None:
                container.forced = ended
            container.kill()

    def send(self, pod_uid: str, number: int) -> None:
        for container in self._running.get(pod_uid, {}).values():
            container.signal(number)

    def processes(self, pod_uid: str) -> list[int]:
        """Returns the ids of the pod's processes that live at this moment."""
        return [pid for c in self._running.get(pod_uid, {}).values() for pid in c.processes()]

    def forget(self, node: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._running:
            self._forgotten[uid] = self._hosts[node]
        else:
            self._hosts[node].forget(pod)

    async def close(self) -> None:
        """Ends every process, and waits until each is gone."""
        endings = []
        for containers in self._running.values():
            for container in containers.values():
                container.kill()
                if container.ending is not None:
                    endings.append(container.ending)
        await asyncio.gather(*endings)


def _bytes(environ: Path) -> bytes:
    """Returns an empty value for a process that has ended, or that belongs to another user."""
    try:
        return b"\0" + environ.read_bytes()
    except OSError:
        return b""


async def _copy(source: asyncio.StreamReader, stream: str, log: CriLog) -> None:
    while data := await source.read(READ_BYTES):
        log.feed(stream, data)


def _message(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MESSAGE_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:  # the pod's folder went with the pod
        return ""


def _base_environment(pod: Object, home: Path) -> dict[str, str]:
    hostname = str(pod["spec"].get("hostname", pod["metadata"]["name"]))
    # Rekindle's image has `rekindle` on its path; here the program is beside the running interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "HOSTNAME": hostname}
