"""The controller frees a pod only where nothing of the pod can still run or write."""

from __future__ import annotations

import pytest

from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated.jobs import Storage
from chaos.simulated.reading import is_ready
from recover.k8s.kinds import PODS
from tests.chaos.invariants.misdeeds import (
    said_after_recovery,
)


def test_a_pod_that_is_taken_from_a_living_node_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        pod = sim.pods()[0]["metadata"]
        await sim.cluster.client(CONTROLLER).delete(PODS, pod["name"], namespace="ml", grace_s=0)

    said = said_after_recovery(act, storage=Storage.CLAIM)
    assert "whose gang is not being recovered" in said
    assert "while its containers ran" in said
    assert "without a proof that its node is off" in said


@pytest.mark.parametrize(("after_s", "is_caught"), [(10.0, True), (310.0, False)])
def test_a_pod_that_is_freed_soon_after_its_node_fell_silent_is_caught(
    after_s: float, is_caught: bool
) -> None:
    async def act(sim: Simulation) -> None:
        pod = sim.pods()[0]
        node = pod["spec"]["nodeName"]
        await sim.crash_node(node)
        await sim.until(lambda: not is_ready(sim.node(node)), within_s=120)
        await sim.passes(after_s)
        await sim.cluster.client(CONTROLLER).delete(PODS, pod["metadata"]["name"], namespace="ml", grace_s=0)

    assert ("after its node fell silent, of 300 s" in said_after_recovery(act)) is is_caught
