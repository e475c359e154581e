"""The controller begins nothing during a pause."""

from __future__ import annotations

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.pauses import NothingBeginsWhilePaused
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated.jobs import Job
from recover.k8s.kinds import NODES
from tests.chaos.invariants.misdeeds import judged, stopped

TAINT = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
SPARE = {"key": "rekindle.dev/spare", "value": "true", "effect": "NoSchedule"}


async def paused(sim: Simulation) -> None:
    sim.kill_controller()
    await sim.submit(Job(ranks=2))
    await sim.passes(65)
    await sim.person.pause()
    await sim.passes(20)


@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("tainted", {"taints": [TAINT]}),
        ("cordoned", {"unschedulable": True}),
        ("changed", {"taints": [SPARE]}),
    ],
)
def test_a_node_that_is_changed_in_a_pause_is_caught(what: str, spec: Object) -> None:
    async def act(sim: Simulation) -> None:
        await paused(sim)
        await sim.cluster.client(CONTROLLER).patch(NODES, "n5", {"spec": spec})

    found = judged(act)
    assert NothingBeginsWhilePaused in found.rules
    assert any("n5" in said and what in said for said in found.said)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_gang_that_trains_and_is_stopped_in_a_pause_is_caught(is_resumed: bool) -> None:
    async def act(sim: Simulation) -> None:
        await paused(sim)
        if is_resumed:
            await sim.person.resume()
        await stopped(sim)

    assert (NothingBeginsWhilePaused in judged(act).rules) is not is_resumed


def test_what_is_done_after_the_resume_is_not_caught() -> None:
    async def act(sim: Simulation) -> None:
        await paused(sim)
        await sim.person.resume()
        await sim.cluster.client(CONTROLLER).patch(NODES, "n5", {"spec": {"taints": [TAINT]}})

    assert NothingBeginsWhilePaused not in judged(act).rules
