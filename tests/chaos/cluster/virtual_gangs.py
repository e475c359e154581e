"""A cluster in virtual time with one training on it, for the stories of gangs and of nodes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

import pytest

from chaos.cluster.virtual import Clock, run
from chaos.cluster.virtual_runtime import VirtualTraining
from chaos.cluster.world import LocalCluster, Shape, virtual_cluster
from recover.k8s.kinds import JOBS, PADDLEJOBS, PODS, PYTORCHJOBS, TFJOBS
from tests.chaos.cluster import manifests as m

__all__ = [
    "KUBEFLOW",
    "NS",
    "START",
    "conditions",
    "environment_of",
    "gang",
    "in_virtual_time",
    "nodes_used",
    "phases",
    "suspend",
]

START = datetime(2026, 11, 21, 9, tzinfo=UTC)
NS = "default"
KUBEFLOW = pytest.mark.parametrize(
    ("resource", "of_policy"),
    [
        (PYTORCHJOBS, lambda policy: m.pytorchjob("llm", 3, policy=policy)),
        (PADDLEJOBS, lambda policy: m.paddlejob("llm", 4, policy=policy)),
        (TFJOBS, lambda policy: m.tfjob("llm", {"Worker": 3, "PS": 1}, policy=policy)),
    ],
    ids=["PyTorchJob", "PaddleJob", "TFJob"],
)
"""Each kind has four ranks. Only the PyTorchJob has a master."""


def in_virtual_time(
    story: Callable[[LocalCluster, VirtualTraining], Coroutine[Any, Any, None]],
    training: VirtualTraining,
    shape: Shape | None = None,
) -> LocalCluster:
    async def main(clock: Clock) -> LocalCluster:
        cluster: AbstractAsyncContextManager[LocalCluster] = virtual_cluster(
            clock.now, lambda pod: training, shape
        )
        async with cluster as up:
            await story(up, training)
        return up

    return run(main, start=START)


def gang(ranks: int = 4, **more: Any) -> VirtualTraining:
    return VirtualTraining(ranks, **{"steps": 100_000, "start_s": 5.0, **more})


def phases(cluster: LocalCluster) -> list[str]:
    return [pod["status"]["phase"] for pod in cluster.store.objects(PODS)]


def nodes_used(cluster: LocalCluster) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in cluster.store.objects(PODS))


def conditions(cluster: LocalCluster, resource: Any, name: str) -> dict[str, str]:
    status = cluster.store.read(resource, name, NS).body.get("status", {})
    return {c["type"]: c["status"] for c in status.get("conditions", [])}


def environment_of(cluster: LocalCluster, pod: str) -> dict[str, str]:
    entries = cluster.pod(pod)["spec"]["containers"][0]["env"]
    return {entry["name"]: entry.get("value", "from a field") for entry in entries}


async def suspend(cluster: LocalCluster, resource: Any, name: str, value: bool) -> None:
    spec = {"suspend": value} if resource == JOBS else {"runPolicy": {"suspend": value}}
    await cluster.client("tester").patch(resource, name, {"spec": spec}, namespace=NS)
