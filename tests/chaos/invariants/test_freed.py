"""The controller frees a pod only if nothing of the pod can still run or write."""

from __future__ import annotations

import pytest

from chaos.invariants.freed import FreedPodsAreDead
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated.jobs import Storage
from chaos.simulated.reading import is_ready
from recover.k8s.kinds import PODS
from tests.chaos.invariants.misdeeds import (
    found_after_recovery,
)


def test_a_pod_that_is_taken_from_a_living_node_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        pod = sim.pods()[0]["metadata"]
        await sim.cluster.client(CONTROLLER).delete(PODS, pod["name"], namespace="ml", grace_s=0)

    assert found_after_recovery(act, storage=Storage.CLAIM).rules == [FreedPodsAreDead] * 3


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

    last = found_after_recovery(act).said[-1]
    assert (f"{after_s:.0f} s" in last and "300 s" in last) is is_caught
