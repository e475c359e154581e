"""Who may write what, and how."""

from __future__ import annotations

from chaos.invariants.writers import NamesTheVersion, ObserveModeOnlyObserves, OwnObjectsOnly
from chaos.simulate.world import Simulation
from chaos.simulated.setup import Setup
from recover.k8s.kinds import NODES, RECOVERIES
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.invariants.misdeeds import (
    found_after_recovery,
    judged,
    on_node,
)


def test_a_write_that_names_no_version_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        name = sim.recovery().metadata.name
        body = {"status": {"message": "what somebody else wrote meanwhile is lost"}}
        await sim.client.patch(RECOVERIES, name, body, namespace="ml", subresource="status")

    assert found_after_recovery(act).rules == [NamesTheVersion]


def test_an_agent_that_leaves_its_room_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.cluster.client("agent:n1").patch(NODES, "n1", {"spec": {"unschedulable": True}})

    assert found_after_recovery(act).rules == [OwnObjectsOnly]


def test_a_write_on_a_node_in_observe_mode_is_caught() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        await on_node(sim, "n3", {"metadata": {"annotations": {"rekindle.dev/note": "seen"}}})

    found = judged(story, Setup(settings=Settings(mode=Mode.OBSERVE)))
    assert found.rules == [ObserveModeOnlyObserves]


def test_a_recovery_that_somebody_else_writes_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        name = sim.recovery().metadata.name
        labels = {"metadata": {"labels": {"team": "research"}}}
        await sim.cluster.client("person").patch(RECOVERIES, name, labels, namespace="ml")

    assert found_after_recovery(act).rules == [OwnObjectsOnly]
