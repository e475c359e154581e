"""The controller changes only its own taints, labels and annotations of a Node."""

from __future__ import annotations

from chaos.invariants.nodes import NodesOfOthers
from chaos.simulate.world import Simulation
from tests.chaos.invariants.misdeeds import (
    found_after_recovery,
    on_node,
)


def test_a_foreign_taint_that_goes_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_node("n3", {"spec": {"taints": [{"key": "a.b/c", "effect": "NoSchedule"}]}})
        await on_node(sim, "n3", {"spec": {"taints": None}})

    found = found_after_recovery(act)
    assert found.rules == [NodesOfOthers]
    assert "a.b/c" in found.said[0]


def test_a_foreign_label_that_changes_is_caught() -> None:
    found = found_after_recovery(lambda sim: on_node(sim, "n3", {"metadata": {"labels": {"zone": "b"}}}))
    assert found.rules == [NodesOfOthers]
    assert "zone" in found.said[0]


def test_a_persons_cordon_that_is_undone_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.cordon("n3")
        await on_node(sim, "n3", {"spec": {"unschedulable": None}})

    assert found_after_recovery(act).rules == [NodesOfOthers]
