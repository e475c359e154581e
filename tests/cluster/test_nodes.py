"""Tests the features of real nodes that Rekindle's tests need: GPUs, names, logs, exec, crash, boot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from detectors import __version__
from tests.cluster.cases import SUBDOMAIN, apply, pod_of, until
from tests.cluster.cluster import GPUS_PER_NODE, NODES, Cluster
from tests.cluster.images import BASE
from tests.cluster.product import PRODUCT, product_image
from tests.cluster.record import ClusterError

pytestmark = pytest.mark.real_nodes


@pytest.fixture
def pods(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Starts a pod on each node. Yields the names of the pods, by node."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SUBDOMAIN, "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"app": SUBDOMAIN}, "ports": [{"port": 8080}]},
    }
    balanced = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "balanced", "namespace": "default"},
        "spec": {"selector": {"app": SUBDOMAIN}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    apply(cluster, service, balanced, *(pod_of(node) for node in NODES))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "pods", f"--selector=app={SUBDOMAIN}")
    yield {node: f"on-{node}" for node in NODES}
    cluster.kubectl("delete", "pods", "--all")
    cluster.kubectl("delete", "service", SUBDOMAIN, "balanced")


def in_pod(cluster: Cluster, pod: str, code: str) -> str:
    return cluster.kubectl("exec", pod, "--", "python3", "-c", code).strip()


def answers(cluster: Cluster, pod: str, url: str) -> bool:
    """Whether the pod got an answer. The answer may take a while: the address of a Service is in force on a
    node only when its kube-proxy knows the pods behind it, and the name of a Service that was created again
    is cached for seconds."""
    code = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=5).status)"
    try:
        return in_pod(cluster, pod, code) == "200"
    except ClusterError:
        return False


def has_log(cluster: Cluster, pod: str) -> bool:
    return bool(cluster.kubectl("logs", pod))


def test_every_node_is_ready_with_its_gpus_and_a_boot_id_of_its_own(cluster: Cluster) -> None:
    statuses = [cluster.node_status(name) for name in NODES]
    boots = [cluster.nodes[name].boot_id for name in NODES]
    assert [status["allocatable"]["nvidia.com/gpu"] for status in statuses] == [str(GPUS_PER_NODE)] * 3
    assert [status["nodeInfo"]["bootID"] for status in statuses] == boots
    assert len(set(boots)) == len(NODES)


def test_a_pod_on_each_node_holds_a_gpu_of_that_node_and_its_log_can_be_read(
    cluster: Cluster, pods: dict[str, str]
) -> None:
    for node, pod in pods.items():
        gpus = cluster.nodes[node].gpus.read_text(encoding="utf-8").split()
        until(f"the first line of {pod}", partial(has_log, cluster, pod))
        assert cluster.kubectl("logs", pod).split()[1] in gpus
        assert in_pod(cluster, pod, "import socket; print(socket.gethostname())") == pod


def test_pods_reach_the_pods_of_other_nodes_by_name_and_through_a_service(
    cluster: Cluster, pods: dict[str, str]
) -> None:
    names = list(pods.values())
    for pod, other in zip(names, [*names[1:], names[0]], strict=True):
        for url in (f"http://{other}.{SUBDOMAIN}:8080/", "http://balanced.default.svc.cluster.local/"):
            until(f"{pod} gets {url}", partial(answers, cluster, pod, url))


def test_a_pod_reaches_the_api_server_and_nothing_outside_of_the_machine(
    cluster: Cluster, pods: dict[str, str]
) -> None:
    code = (
        "import socket\n"
        "try: socket.create_connection(('203.0.113.1', 80), 5)\n"
        "except OSError as error: print(type(error).__name__, error.errno)"
    )
    for pod in pods.values():
        until(f"{pod} reaches the API server", partial(reaches_api_server, cluster, pod))
        assert in_pod(cluster, pod, code) == "OSError 101"  # the network is unreachable


def reaches_api_server(cluster: Cluster, pod: str) -> bool:
    """Whether the pod reaches the API server by its name and its Service, which come into force on a node as
    in `answers`."""
    try:
        in_pod(cluster, pod, "import socket; socket.create_connection(('kubernetes.default', 443), 5)")
    except ClusterError:
        return False
    return True


def test_a_gpu_that_is_lost_can_no_longer_be_asked_for(cluster: Cluster) -> None:
    node = cluster.nodes["worker-2"]
    lines = node.gpus.read_text(encoding="utf-8")

    def allocatable() -> int:
        return int(cluster.node_status(node.name)["allocatable"]["nvidia.com/gpu"])

    try:
        node.gpus.write_text(lines.partition("\n")[0] + "\n", encoding="utf-8")
        lost_s = until("one GPU less", lambda: allocatable() == GPUS_PER_NODE - 1)
        print(f"\na GPU lost: not allocatable after {lost_s:.1f} s")
    finally:
        node.gpus.write_text(lines, encoding="utf-8")
    until("all GPUs again", lambda: allocatable() == GPUS_PER_NODE)


def test_a_container_that_takes_more_memory_than_its_limit_is_killed_and_its_status_says_so(
    cluster: Cluster,
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "greedy", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": BASE,
                    "imagePullPolicy": "Never",
                    "command": ["python3", "-c", "bytearray(200_000_000)"],
                    "resources": {"limits": {"memory": "50Mi"}},
                }
            ],
        },
    }
    apply(cluster, pod)
    reason = "--output=jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    until("its end", lambda: cluster.kubectl("get", "pod", "greedy", reason) == "OOMKilled")
    cluster.kubectl("delete", "pod", "greedy")


def test_our_own_image_made_by_the_steps_of_the_dockerfile_runs_without_root(cluster: Cluster) -> None:
    began = time.monotonic()
    archive = product_image()
    print(f"\nour image: made in {time.monotonic() - began:.1f} s")
    ctr = cluster.programs.path("ctr")
    cluster.nodes["worker-2"].command(ctr, "--namespace=k8s.io", "images", "import", str(archive))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ours", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": "worker-2"},
            "securityContext": {"runAsNonRoot": True},
            "containers": [
                {
                    "name": "main",
                    "image": PRODUCT,
                    "imagePullPolicy": "Never",
                    "args": ["--version"],
                    "securityContext": {"readOnlyRootFilesystem": True},
                }
            ],
        },
    }
    apply(cluster, pod)
    phase = ("get", "pod", "ours", "--output=jsonpath={.status.phase}")
    until("its end", lambda: cluster.kubectl(*phase) == "Succeeded")
    assert cluster.kubectl("logs", "ours").strip() == f"rekindle {__version__}"
    cluster.kubectl("delete", "pod", "ours")


def test_a_node_that_crashes_is_not_ready_and_boots_with_a_new_id_and_its_disk(
    cluster: Cluster, pods: dict[str, str]
) -> None:
    node = cluster.nodes["worker-1"]
    before = node.boot_id

    def ready() -> str:
        conditions = cluster.node_status(node.name)["conditions"]
        return str(next(c["status"] for c in conditions if c["type"] == "Ready"))

    node.crash()
    dead_s = until("NotReady", lambda: ready() == "Unknown")
    node.start()
    booted_s = until("Ready again", lambda: cluster.is_ready(node.name))
    print(f"\na crash: NotReady after {dead_s:.1f} s; a boot: Ready after {booted_s:.1f} s")

    assert cluster.node_status(node.name)["nodeInfo"]["bootID"] == node.boot_id != before
    # The kubelet starts the pod's container again some seconds after the boot.
    until("its pod again", lambda: answers(cluster, pods[node.name], "http://127.0.0.1:8080/"))
