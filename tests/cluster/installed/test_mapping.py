"""Tests which pod uses which GPU: the agents publish what scheduler and kubelets have decided."""

from __future__ import annotations

from collections.abc import Iterator, Set

import pytest

from chaos.simulated.lines import CONTAINED, FALLEN_OFF_THE_BUS
from tests.cluster.cases import apply, until
from tests.cluster.cluster import Cluster
from tests.cluster.gpus import gpu_id
from tests.cluster.install import listed
from tests.cluster.installed.people import mend, quarantined, recoveries
from tests.cluster.installed.steppers import NAMESPACE, ranks, steppers, stepping
from tests.cluster.kernel_log import xid

pytestmark = pytest.mark.real_nodes

LIMIT_S = 120.0
Held = dict[str, tuple[str, frozenset[str]]]
"""Node and GPU ids of each pod, by the pod's uid."""


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    """Afterwards there is no gang, and no GPU is broken."""
    yield
    cluster.kubectl("delete", "jobs,pods", "--all", f"--namespace={NAMESPACE}")
    mend(cluster)


def test_the_agents_tell_the_node_and_the_gpus_that_each_pod_was_given_also_when_pods_are_made_anew(
    cluster: Cluster,
) -> None:
    for node in cluster.nodes.values():
        xid(node, CONTAINED)  # agents publish the pods of a broken device; new pods still come
    seen: set[str] = set()
    for count, gpus in ((3, 1), (3, 1), (2, 2)):
        wanted = held_anew(cluster, count, gpus)
        assert not seen & wanted.keys()
        told_s = until_told(cluster, wanted)
        print(f"\n{count} pods, {gpus} GPUs each, told after {told_s:.1f} s: {sorted(wanted.values())}")
        seen |= wanted.keys()
        cluster.kubectl("delete", "pods", "--all", f"--namespace={NAMESPACE}")


def held_anew(cluster: Cluster, count: int, gpus: int) -> Held:
    """Creates new pods with the same names, each on its own node, and returns what they use. The kubelet's
    answer knows only names."""
    template = steppers("held", gpus=gpus)["spec"]["template"]
    for number in range(count):
        meta = {**template["metadata"], "name": f"held-{number}", "namespace": NAMESPACE}
        apply(cluster, {**template, "apiVersion": "v1", "kind": "Pod", "metadata": meta})
    until("all pods", lambda: len(ranks(cluster, "held")) == count, LIMIT_S)
    return given(cluster, "held")


def until_told(cluster: Cluster, wanted: Held) -> float:
    return until("the same from the agents", lambda: published(cluster, wanted.keys()) == wanted, LIMIT_S)


def given(cluster: Cluster, name: str) -> Held:
    """Returns the GPUs of each pod according to the scheduler, and to the environment that the device plugin
    has given to the containers."""
    held: Held = {}
    for pod in ranks(cluster, name):
        meta = pod["metadata"]
        asked = ("exec", meta["name"], f"--namespace={NAMESPACE}", "--", "printenv", "NVIDIA_VISIBLE_DEVICES")
        held[meta["uid"]] = pod["spec"]["nodeName"], frozenset(cluster.kubectl(*asked).strip().split(","))
    return held


def published(cluster: Cluster, of: Set[str]) -> Held:
    """Returns the GPUs of these pods according to the agents."""
    held: Held = {}
    for health in listed(cluster, "nodehealths.rekindle.dev"):
        node = health["metadata"]["name"]
        for device in health["status"].get("devices", []):
            for uid in of & {pod["uid"] for pod in device.get("pods", [])}:
                held[uid] = node, held.get(uid, (node, frozenset()))[1] | {device["uuid"]}
    return held


def test_a_gpu_that_is_lost_harms_only_the_gang_that_holds_it(cluster: Cluster) -> None:
    node, other = "worker-1", "worker-2"
    for name in ("left", "right"):
        apply(cluster, steppers(name, nodes=[node, other]))
    pods = {name: stepping(cluster, name) for name in ("left", "right")}
    assert {pod["spec"]["nodeName"] for pod in [*pods["left"], *pods["right"]]} == {node, other}
    before = {name: uids(cluster, name) for name in ("left", "right")}
    ((lost,),) = (gpus for where, gpus in given(cluster, "left").values() if where == node)

    xid(cluster.nodes[node], FALLEN_OFF_THE_BUS, gpu=[gpu_id(node, 0), gpu_id(node, 1)].index(lost))

    moved_s = until("left elsewhere", lambda: len(uids(cluster, "left") - before["left"]) == 2, LIMIT_S)
    print(f"\na gang that shared the node was moved within {moved_s:.1f} s, the other was left alone")
    assert node not in {pod["spec"]["nodeName"] for pod in stepping(cluster, "left")}
    assert quarantined(cluster) == {node}
    assert len(recoveries(cluster, "left")) == 1
    assert recoveries(cluster, "right") == []
    assert uids(cluster, "right") == before["right"]


def uids(cluster: Cluster, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in ranks(cluster, name)}
