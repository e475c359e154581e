"""Signals to processes of containers, sent by root of their node; no kubelet sends them."""

from __future__ import annotations

from typing import Any

from tests.cluster.cluster import Cluster

__all__ = ["first_process", "signal"]


def signal(cluster: Cluster, pod: dict[str, Any], name: str) -> None:
    """Sends the signal, `KILL` or `STOP`, to the first process of the pod's only container."""
    pid = first_process(cluster, pod)
    cluster.nodes[pod["spec"]["nodeName"]].command("kill", f"-{name}", pid)


def first_process(cluster: Cluster, pod: dict[str, Any]) -> str:
    """Returns the process id, as the node sees it."""
    (status,) = pod["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    ctr = cluster.programs.path("ctr")
    tasks = cluster.nodes[pod["spec"]["nodeName"]].command(ctr, "--namespace=k8s.io", "tasks", "list")
    (pid,) = (row[1] for line in tasks.splitlines() if (row := line.split())[0] == container)
    return pid
