"""The shipped agent, as a process, on a node with a volume that hangs permanently: the child that reads the
volume is immune to SIGKILL. Nothing else in the agent may wait for that child."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from detectors.wire.contract import CoverageState, Finding, NodeHealthStatus, Source
from detectors.wire.training import Edge
from tests.detectors.agent.host import Host
from tests.detectors.client.node_api import NodeApi, node_api
from tests.detectors.sources.hung_volume import healthy, hung, needs_mounts, shared_folder
from tests.detectors.sources.kubelet import answer, kubelet, pod

pytestmark = [needs_mounts, pytest.mark.processes]

MORE_BYTES_MAX = 16 * 1024 * 1024
"""Limit of the additional memory in bytes: a child that hangs keeps its memory."""
OTHER_THREADS_MAX = 3
"""Limit of the other threads: the thread of the loop, the thread that reads ports, and one for the child that
calls the kubelet. Each child that reads volumes may have one more thread that waits for its end."""
ROUNDS = 8
"""Number of samples of the volumes that are taken while the volume hangs."""
SETTINGS = (
    *("nvml.enabled=false", "volumes.every_s=0.5", "volumes.pause_s=0.1", "volumes.deadline_s=1"),
    *("fabric.every_s=0.5", "host.every_s=0.5", "publishing.missing_retry_s=0.1"),
)


@pytest.fixture
def host() -> Iterator[Host]:
    """Yields a host. Its root has a short name, because the path of a socket has 107 bytes at most."""
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    yield Host(root)
    shutil.rmtree(root)


@asynccontextmanager
async def agent(host: Host, api: NodeApi) -> AsyncIterator[int]:
    """Runs the agent and yields its process id."""
    arguments = ["agent", f"--node={api.node}", f"--host-root={host.root}", f"--server={api.url}"]
    sets = [f"--set={setting}" for setting in SETTINGS]
    program = [sys.executable, "-m", "detectors.commands.main", *arguments, "--listen=127.0.0.1:0", *sets]
    process = await asyncio.create_subprocess_exec(*program, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield process.pid
        assert process.returncode is None
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        finally:
            if process.returncode is None:
                process.kill()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def askers(pid: int) -> list[int]:
    """Returns the pids of the agent's children that read volumes."""
    return [one for one in children(pid) if b"volumes_child" in Path(f"/proc/{one}/cmdline").read_bytes()]


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def coverage(status: NodeHealthStatus) -> dict[Source, CoverageState]:
    return {entry.source: entry.state for entry in status.coverage}


def pss_bytes(pid: int) -> int:
    """Returns the memory of the agent and its children in bytes."""
    files = [Path(f"/proc/{one}/smaps_rollup") for one in (pid, *children(pid))]
    rows = [line.split() for file in files for line in file.read_text().splitlines()]
    return sum(int(row[1]) * 1024 for row in rows if row[0] == "Pss:")


async def test_a_volume_that_hangs_for_good_is_told_and_holds_up_nothing_else(host: Host) -> None:
    (host.root / "sys/class").mkdir(parents=True)
    pods = host.root / "var/lib/kubelet/pods"
    volumes = pods / "uid-llm-0/volumes/kubernetes.io~nfs"
    volumes.mkdir(parents=True)
    host.prints("step 1 loss 2.0")
    with shared_folder(pods), kubelet(host.root) as played, healthy(volumes / "data"):
        played.answer = answer(pod("llm-0", "GPU-38", namespace="train"))
        async with node_api("n1") as api, agent(host, api) as pid:
            before = await api.until(lambda status: len(coverage(status)) == len(Source))
            calm = pss_bytes(pid)
            with hung(volumes / "ckpt"):
                silent = await api.until(lambda status: bool(volume_findings(status)), timeout_s=60)
                stuck = askers(pid)
                await asyncio.sleep(ROUNDS * 0.6)
                host.kernel("NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus.")
                for step in range(2, 12):
                    host.prints(f"step {step} loss 2.0")
                during = await api.until(is_told_all, timeout_s=60)
                late = threads(pid), pss_bytes(pid), askers(pid)
            while set(stuck) & set(children(pid)):
                await asyncio.sleep(0.05)
            await api.until(lambda status: all(one.cleared_at for one in volume_findings(status)))

    assert [one.subject.volume for one in volume_findings(silent)] == ["ckpt"]
    assert coverage(during) == coverage(before), "the other volumes are still read"
    assert len(stuck) == 1, "one child waits in the volume"
    assert set(stuck) <= set(late[2])
    assert len(late[2]) <= 2, "it, and the one that asks the other volumes now"
    assert late[0] <= OTHER_THREADS_MAX + len(late[2])
    assert late[1] <= calm + MORE_BYTES_MAX
    print(f"PSS before {calm / 2**20:.1f} MiB, while it hangs {late[1] / 2**20:.1f} MiB, threads {late[0]}")


async def test_with_three_children_that_hang_no_further_one_is_started_and_the_source_is_blind(
    host: Host,
) -> None:
    pods = host.root / "var/lib/kubelet/pods"
    volumes = pods / "uid-llm-0/volumes/kubernetes.io~nfs"
    volumes.mkdir(parents=True)
    host.prints("step 1 loss 2.0")
    with shared_folder(pods), kubelet(host.root) as played, ExitStack() as hanging:
        played.answer = answer(pod("llm-0", "GPU-38", namespace="train"))
        for number in range(4):
            hanging.enter_context(hung(volumes / f"ckpt-{number}"))
        async with node_api("n1") as api, agent(host, api) as pid:
            blind = await api.until(lambda status: bool(why_blind(status)), timeout_s=60)
            stuck = askers(pid)
            await asyncio.sleep(ROUNDS * 0.6)
            host.kernel("NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus.")
            await api.until(lambda status: "xid-79" in {finding.code for finding in status.findings})
            later = askers(pid), threads(pid), pss_bytes(pid)
            hanging.close()
            await api.until(lambda status: not why_blind(status), timeout_s=60)

    assert len(stuck) == 3
    assert set(later[0]) == set(stuck)
    assert all(str(child) in why_blind(blind) for child in stuck)
    assert later[1] <= OTHER_THREADS_MAX + len(stuck)
    print(f"PSS with three children that hang {later[2] / 2**20:.1f} MiB, threads {later[1]}")


def why_blind(status: NodeHealthStatus) -> str:
    found = (entry for entry in status.coverage if entry.source is Source.VOLUMES)
    return next((entry.why for entry in found if entry.state is CoverageState.BLIND), "")


def volume_findings(status: NodeHealthStatus) -> list[Finding]:
    return [finding for finding in status.findings if finding.subject.volume]


def is_told_all(status: NodeHealthStatus) -> bool:
    """Whether the status has the kernel's line and the steps that came while the volume hung."""
    codes = {finding.code for finding in status.findings}
    return "xid-79" in codes and any(pod.edge is Edge.STEPPING for pod in status.pods)
