"""Tests the executor's writes of Rekindle's own condition on Nodes."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from chaos.apiserver.client import Client
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError
from recover.api.marks import OWN_CONDITION
from recover.k8s.kinds import NODES
from recover.kube.cluster import Cluster
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.execute import Executor
from recover.runtime.node_conditions import NodeConditions
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from recover.triage.node_condition import STEADY_S
from tests.recover.runtime.executing import NOT_BOUND, START
from tests.recover.scripted import Scripted, raw

NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "capacity": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}],
    },
}
MODES = Modes(begun(Mode.RECOVER, START))


def looked(cluster: Cluster, node: bytes, *, looks: int, is_on: bool = True) -> Observer:
    """Runs this number of reconcile passes, each after a change has lasted long enough."""

    async def main(clock: Clock) -> Observer:
        observer = Observer(cluster, Settings(), lambda: None)
        observer.absorb(NODES, node)
        executor, loop = Executor(cluster, observer, Metrics(), clock), NodeConditions(is_on=is_on)
        for _ in range(looks):
            await executor.run(loop.decide(observer.world(MODES), clock.now()))
            await asyncio.sleep(STEADY_S)
        return observer

    return run(main, start=START)


def test_only_our_condition_is_written_and_removed_again() -> None:
    store = MemoryCluster(lambda: START)
    node = store.create(NODES, NODE).raw

    looked(Client(store, "controller"), node, looks=5)

    ready, ours = store.read(NODES, "n1").body["status"]["conditions"]
    assert ready == NODE["status"]["conditions"][0]
    assert (ours["type"], ours["status"], ours["reason"]) == (OWN_CONDITION, "Unknown", "NotWatched")
    assert ours["lastTransitionTime"] == "2026-11-21T12:01:00Z"

    looked(Client(store, "controller"), store.read(NODES, "n1").raw, looks=2, is_on=False)
    assert store.read(NODES, "n1").body["status"]["conditions"] == [ready]


@pytest.mark.parametrize("answer", [NOT_BOUND, ApiError(403, "Forbidden", "denied by a webhook")])
def test_a_refusal_is_told_once_and_is_none_of_the_node_itself(answer: ApiError) -> None:
    node = raw("n1", 1, namespace="", status=NODE["status"])
    with capture_logs() as logs:
        cluster = Scripted(patch=[answer] * 50, get=[node] * 50)
        observer = looked(cluster, node, looks=40)

    refused = observer.world(MODES).refused
    assert refused.keys() == {"nodes/n1/status"}
    assert len([one for one in logs if one["log_level"] in ("warning", "error")]) == 1
