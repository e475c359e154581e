"""Pods as real processes: what agents and programs find on a node, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from chaos.cluster.containers import Exit
from chaos.cluster.podworker import KubeletSettings
from chaos.cluster.world import LocalCluster, Shape, process_cluster
from recover.k8s.kinds import PODS
from tests.chaos.cluster import manifests as m

NS = "default"
T = TypeVar("T")
FOREVER = "import time, os; print('up', os.getpid()); time.sleep(600)"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    shape = Shape(nodes=2, kubelet=KubeletSettings(restart_backoff_s=0.05))
    claims = {"checkpoints": tmp_path / "claim"}
    async with process_cluster(tmp_path / "nodes", shape, volumes=claims, rest=False) as up:
        yield up


async def eventually(probe: Callable[[], T]) -> T:
    """Returns the first true answer within a minute: the machine may be busy."""
    for _ in range(6000):
        found = probe()
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("did not happen within a minute")


async def until(cluster: LocalCluster, name: str, phase: str) -> None:
    await eventually(lambda: cluster.pod(name)["status"]["phase"] == phase)


def log_of(cluster: LocalCluster, name: str, restart: int = 0) -> str:
    """Returns the log of the pod, or an empty string while there is none."""
    pod = cluster.pod(name)
    if "nodeName" not in pod["spec"]:
        return ""
    path = cluster.hosts[pod["spec"]["nodeName"]].log_folder(pod) / "main" / f"{restart}.log"
    return path.read_text() if path.exists() else ""


async def pid_of(cluster: LocalCluster, name: str) -> int:
    """Returns the process id that the pod printed."""
    found = await eventually(lambda: re.search(r"up (\d+)", log_of(cluster, name)))
    return int(found[1])


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_output_lands_in_a_cri_log_and_the_exit_in_the_status(cluster: LocalCluster) -> None:
    program = "import sys; print('hello'); print('bad', file=sys.stderr); sys.exit(3)"
    await cluster.apply(m.pod("one", m.python(program)))
    await until(cluster, "one", "Failed")

    lines = sorted(log_of(cluster, "one").splitlines(), key=lambda line: line.split()[1])

    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
    assert re.fullmatch(stamp + " stderr F bad", lines[0])
    assert re.fullmatch(stamp + " stdout F hello", lines[1])
    state = cluster.pod("one")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (3, "Error")


async def test_paths_in_arguments_and_variables_lead_to_the_mounted_folders(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    program = (
        "import os, sys, pathlib\n"
        "pathlib.Path(sys.argv[1], 'a').write_text(os.environ['WHO'])\n"
        "pathlib.Path(os.environ['SCRATCH'], 'b').write_text('x')\n"
        "pathlib.Path(os.environ['SAY']).write_text('chosen 42')\n"
    )
    container = m.python(
        program,
        "/ckpt/run",
        env=[
            {"name": "SCRATCH", "value": "/scratch"},
            {"name": "SAY", "value": "/dev/termination-log"},
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        volumeMounts=[{"name": "c", "mountPath": "/ckpt"}, {"name": "s", "mountPath": "/scratch"}],
    )
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "checkpoints"}}
    (tmp_path / "claim" / "run").mkdir(parents=True)
    await cluster.apply(m.pod("one", container, volumes=[claim, {"name": "s", "emptyDir": {}}]))
    await until(cluster, "one", "Succeeded")

    assert (tmp_path / "claim" / "run" / "a").read_text() == "one"
    state = cluster.pod("one")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["message"]) == ("Completed", "chosen 42")


async def test_a_failing_container_restarts_in_place_with_the_next_log_number(cluster: LocalCluster) -> None:
    program = (
        "import os, sys, pathlib; p = pathlib.Path('n'); n = p.exists(); p.touch(); print(n); sys.exit(not n)"
    )
    await cluster.apply(m.pod("one", m.python(program), restartPolicy="OnFailure"))
    await until(cluster, "one", "Succeeded")

    status = cluster.pod("one")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert log_of(cluster, "one", 0).endswith("stdout F False\n")
    assert log_of(cluster, "one", 1).endswith("stdout F True\n")


async def test_deleting_a_pod_ends_its_processes_and_removes_its_files(cluster: LocalCluster) -> None:
    children = "import subprocess, sys; subprocess.Popen(['sleep', '600']);" + FOREVER
    await cluster.apply(m.pod("one", m.python(children)))
    pid = await pid_of(cluster, "one")
    await until(cluster, "one", "Running")
    pod = cluster.pod("one")
    host = cluster.hosts[pod["spec"]["nodeName"]]
    container_id = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    assert host.cgroup(pod["metadata"]["uid"], container_id).is_dir()

    await cluster.client("tester").delete(PODS, "one", namespace=NS)
    await eventually(lambda: not cluster.store.objects(PODS))

    assert not lives(pid)
    assert not host.log_folder(pod).exists()
    assert not host.cgroup(pod["metadata"]["uid"], "").exists()


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(cluster: LocalCluster) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + FOREVER
    await cluster.apply(m.pod("one", m.python(stubborn), terminationGracePeriodSeconds=1))
    pid = await pid_of(cluster, "one")
    await cluster.client("tester").delete(PODS, "one", namespace=NS)
    await asyncio.sleep(0.5)
    assert lives(pid)
    await eventually(lambda: not cluster.store.objects(PODS))
    assert not lives(pid)


async def test_a_crash_says_how_the_container_ended(cluster: LocalCluster) -> None:
    await cluster.apply(m.pod("one", m.python(FOREVER)))
    pid = await pid_of(cluster, "one")
    cluster.crash_pod("one", Exit.out_of_memory())
    await until(cluster, "one", "Failed")
    state = cluster.pod("one")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")
    assert not lives(pid)


async def test_what_left_the_containers_process_group_ends_with_it(cluster: LocalCluster) -> None:
    """torchrun starts each worker in its own session. In a real container no process outlives the first
    process."""
    program = (
        "import subprocess as s, sys, time; "
        "p = s.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); "
        "print('up', p.pid, flush=True); time.sleep(600)"
    )
    await cluster.apply(m.pod("one", m.python(program)))
    worker = await pid_of(cluster, "one")

    cluster.crash_pod("one", Exit.by_signal(signal.SIGKILL))

    await until(cluster, "one", "Failed")
    await eventually(lambda: has_ended(worker))


def has_ended(pid: int) -> bool:
    """Whether the process has ended. An orphan whose new parent has not read its exit status counts as
    ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_container_of_the_same_name_in_another_cluster_is_left_alone(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with process_cluster(tmp_path / "other", Shape(nodes=2), rest=False) as other:
        for up in (cluster, other):
            await up.apply(m.pod("one", m.python(FOREVER)))
        pid = await pid_of(other, "one")
        await pid_of(cluster, "one")

        cluster.crash_pod("one", Exit.by_signal(signal.SIGKILL))

        await until(cluster, "one", "Failed")
        assert not has_ended(pid)


async def test_a_real_signal_ends_the_container_with_its_number(cluster: LocalCluster) -> None:
    await cluster.apply(m.pod("one", m.python(FOREVER)))
    await pid_of(cluster, "one")
    cluster.signal_pod("one", signal.SIGABRT)
    await until(cluster, "one", "Failed")
    state = cluster.pod("one")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["signal"]) == (134, 6)


async def test_a_crashed_node_reports_nothing_and_boots_with_a_new_boot_id(cluster: LocalCluster) -> None:
    await cluster.apply(m.pod("one", m.python(FOREVER)))
    pid = await pid_of(cluster, "one")
    await until(cluster, "one", "Running")
    node = cluster.pod("one")["spec"]["nodeName"]
    boot_id = cluster.hosts[node].root / "proc/sys/kernel/random/boot_id"
    before = boot_id.read_text()

    await cluster.crash_node(node)
    await eventually(lambda: not lives(pid))
    assert cluster.pod("one")["status"]["phase"] == "Running"

    await cluster.boot_node(node)
    await until(cluster, "one", "Failed")
    assert boot_id.read_text() != before


async def test_a_command_that_is_not_there_keeps_the_pod_waiting_with_a_reason(cluster: LocalCluster) -> None:
    await cluster.apply(m.pod("one", m.gpu_container("/no/such/program")))
    statuses = await eventually(lambda: cluster.pod("one")["status"].get("containerStatuses"))
    waiting = statuses[0]["state"]["waiting"]
    assert waiting["reason"] == "RunContainerError"
    assert "/no/such/program" in waiting["message"]


async def test_kernel_records_are_written_as_the_kernel_gives_them(cluster: LocalCluster) -> None:
    cluster.append_kmsg("n1", "first")
    cluster.append_kmsg("n1", "NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen\noff the bus")
    records = cluster.hosts["n1"].kmsg.read_text().splitlines()
    assert re.fullmatch(r"3,0,\d+,-;first", records[0])
    assert re.fullmatch(r"3,1,\d+,-;NVRM: Xid .*fallen\\x0aoff the bus", records[1])


async def test_a_node_shows_its_gpus_as_the_driver_does(cluster: LocalCluster) -> None:
    host = cluster.hosts["n2"]
    text = (host.root / "proc/driver/nvidia/gpus/0000:17:00.0/information").read_text()
    assert re.search(r"^GPU UUID:\s+" + host.gpus[0].uuid + "$", text, re.MULTILINE)
    assert re.search(r"^Bus Location:\s+0000:17:00\.0$", text, re.MULTILINE)


async def test_leaving_the_cluster_leaves_no_process(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, Shape(nodes=1), rest=False) as cluster:
        await cluster.apply(m.pod("one", m.python(FOREVER)))
        pid = await pid_of(cluster, "one")
    assert not lives(pid)
