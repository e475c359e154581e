"""Faults of a node other than GPU faults, and faults of what a job may use, on real nodes. Each is named, the
gang continues as the policy says, and Rekindle names the application as the culprit of none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cases import apply, until
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.faults.processes import signal
from tests.cluster.install import listed
from tests.cluster.installed.agents import boot, health
from tests.cluster.installed.people import mend, quarantined, recoveries
from tests.cluster.installed.steppers import NAMESPACE, STEPS, ranks, steppers, stepping
from tests.cluster.kernel_log import kernel_says
from tests.cluster.sysfs import NIC, SWITCH, port

pytestmark = pytest.mark.real_nodes

NODE, OTHER = "worker-1", "worker-2"
LIMIT_S = 180.0
SAVING = """
import itertools, time
with open("/ckpt/state", "wb") as checkpoint:
    for step in itertools.count(1):
        print(f"step {step} loss 0.25", flush=True)
        if step > 5:
            checkpoint.write(bytes(2**20))
            checkpoint.flush()
        time.sleep(1)
"""
"""A program whose checkpoint grows beyond its volume."""
OVER_INFINIBAND = """
import itertools, os, signal, time

def ends_with(*lines):
    def end(number, frame):
        print(*lines, sep="\\n", flush=True)
        os._exit(1)
    return end

signal.signal(signal.SIGUSR1, ends_with(
    "llm:42:97 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
))
signal.signal(signal.SIGUSR2, ends_with(
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
))
for step in itertools.count(1):
    print(f"step {step} loss 0.25", flush=True)
    time.sleep(1)
"""
"""A program that ends on a signal as NCCL ends a rank: with the message of a rank whose port is lost, or of
its peers."""
TRAINED_S = 75
"""Time in seconds of training before a link is lost: within its first minute the link would still be in
training."""


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    """Afterwards there is no gang, and nothing is broken."""
    yield
    cluster.kubectl("delete", "jobs", "--all", f"--namespace={NAMESPACE}")
    port(cluster.nodes[NODE].folder, is_active=True)
    boot(cluster, NODE)
    mend(cluster)
    until("free GPUs", lambda: not listed(cluster, "pods", "--selector=steppers"), LIMIT_S)


def causes(cluster: Cluster, gang: str) -> set[tuple[str, str]]:
    """Returns fault class and blame of each cause of the gang's recoveries."""
    found = recoveries(cluster, gang)
    told = [cause for one in found for part in ("spec", "status") for cause in one[part].get("causes", [])]
    return {(cause["fault"], cause.get("blame", "unknown")) for cause in told}


def begun(cluster: Cluster, name: str, program: str = STEPS) -> set[str]:
    """Starts a gang that takes both nodes completely, and waits for its steps. Returns the uids of its
    pods."""
    apply(cluster, steppers(name, gpus=GPUS_PER_NODE, program=program, nodes=[NODE, OTHER]))
    pods = stepping(cluster, name)
    assert {pod["spec"]["nodeName"] for pod in pods} == {NODE, OTHER}
    return {pod["metadata"]["uid"] for pod in pods}


def until_moved(cluster: Cluster, name: str, before: set[str]) -> float:
    """Waits until all ranks are new, and none of them is on the node. Returns how long that took, in
    seconds."""

    def has_moved() -> bool:
        now = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in ranks(cluster, name)}
        return len(now) == len(before) and not now.keys() & before and NODE not in now.values()

    moved_s = until("new ranks on other nodes", has_moved, LIMIT_S)
    stepping(cluster, name)
    return moved_s


def test_a_gang_leaves_a_node_whose_switch_between_gpus_has_failed(cluster: Cluster) -> None:
    before = begun(cluster, "switched")

    kernel_says(
        cluster.nodes[NODE],
        f"nvidia-nvswitch0: SXid (PCI:{SWITCH}): 20034, Fatal, Link 30 LTSSM Fault Up",
    )

    print(f"\na fatal SXid: ranks anew after {until_moved(cluster, 'switched', before):.1f} s")
    assert quarantined(cluster) == {NODE}
    assert causes(cluster, "switched") == {("nvswitch", "node")}


def test_a_gang_leaves_a_node_whose_network_adapter_has_died(cluster: Cluster) -> None:
    """The rank on that node prints what its library met, and its peer prints that the rank was lost. The
    state of the port identifies the culprit: the job prefers this node, and gets another one."""
    node = cluster.nodes[NODE]
    before = begun(cluster, "fabric", OVER_INFINIBAND)
    time.sleep(TRAINED_S)

    kernel_says(node, f"mlx5_core {NIC}: poll_health:825: device's health compromised - reached miss count.")
    port(node.folder, is_active=False)
    for pod in ranks(cluster, "fabric"):
        signal(cluster, pod, "USR1" if pod["spec"]["nodeName"] == NODE else "USR2")

    print(f"\nranks anew after {until_moved(cluster, 'fabric', before):.1f} s")
    taken_s = until("the node's quarantine", lambda: quarantined(cluster) == {NODE}, LIMIT_S)
    print(f"the node is out {taken_s:.1f} s later")
    assert "application" not in {blame for _, blame in causes(cluster, "fabric")}
    codes = {one["code"] for one in health(cluster, NODE)["findings"]}
    assert {"port-dead", "mlx5-health-lost"} <= codes | chained(cluster)


def chained(cluster: Cluster) -> set[str]:
    """Returns the codes that followed others on one device."""
    return {code for one in health(cluster, NODE)["findings"] for code in one.get("chain", [])}


def test_a_full_checkpoint_volume_is_neither_the_programs_fault_nor_a_nodes(cluster: Cluster) -> None:
    apply(cluster, saving_to_a_small_volume())
    stepping(cluster, "full")

    until("a recovery", lambda: bool(recoveries(cluster, "full")), LIMIT_S)

    assert causes(cluster, "full") == {("resources", "resources")}
    assert quarantined(cluster) == set()


def saving_to_a_small_volume() -> dict[str, Any]:
    job = steppers("full", program=SAVING)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "ckpt", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "ckpt", "mountPath": "/ckpt"}]
    return job
