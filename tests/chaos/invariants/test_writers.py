"""Tests which account may write what, and how."""

from __future__ import annotations

from chaos.invariants.writers import NamesTheVersion, ObserveModeOnlyObserves, OwnObjectsOnly
from chaos.simulate.world import Simulation
from chaos.simulated.setup import Setup
from detectors.wire.resource import JsonPatch
from recover.k8s.kinds import NODES, PYTORCHJOBS, RECOVERIES
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


def test_a_patch_of_a_job_that_tests_less_than_all_wishes_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        job = sim.cluster.store.read(PYTORCHJOBS, "llm", "ml").body
        test = {"op": "test", "path": "/metadata/generation", "value": job["metadata"]["generation"]}
        change = {"op": "add", "path": "/metadata/annotations", "value": {"rekindle.dev/note": "1"}}
        await sim.client.patch(PYTORCHJOBS, "llm", [test, change], namespace="ml", patch_type=JsonPatch)

    assert NamesTheVersion in found_after_recovery(act).rules


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
