"""Faults of a node beside its GPUs, and of what a job may use, on real nodes: each is named, the gang goes on
as the policy says, and the application is blamed for none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cases import apply, until
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.installed.people import mend, quarantined, recoveries
from tests.cluster.installed.steppers import NAMESPACE, ranks, steppers, stepping
from tests.cluster.kernel_log import kernel_says
from tests.cluster.sysfs import SWITCH

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
"""A checkpoint that grows beyond its volume."""


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    """Afterwards no gang is there, and nothing is broken."""
    yield
    cluster.kubectl("delete", "jobs", "--all", f"--namespace={NAMESPACE}")
    mend(cluster)


def causes(cluster: Cluster, gang: str) -> set[tuple[str, str]]:
    """Class and blame of each cause of its one recovery."""
    (recovery,) = recoveries(cluster, gang)
    told = [*recovery["spec"]["causes"], *recovery.get("status", {}).get("causes", [])]
    return {(cause["fault"], cause.get("blame", "unknown")) for cause in told}


def begun(cluster: Cluster, name: str) -> set[str]:
    """A gang that takes both nodes whole, and has made steps. Returns the uids of its pods."""
    apply(cluster, steppers(name, gpus=GPUS_PER_NODE, nodes=[NODE, OTHER]))
    pods = stepping(cluster, name)
    assert {pod["spec"]["nodeName"] for pod in pods} == {NODE, OTHER}
    return {pod["metadata"]["uid"] for pod in pods}


def until_moved(cluster: Cluster, name: str, before: set[str]) -> float:
    """Until all its ranks are new ones, and none of them is on the node."""

    def is_anew() -> bool:
        now = {pod["metadata"]["uid"] for pod in ranks(cluster, name)}
        return len(now) == len(before) and not now & before

    moved_s = until("new ranks", is_anew, LIMIT_S)
    assert NODE not in {pod["spec"]["nodeName"] for pod in stepping(cluster, name)}
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
