"""A spare takes pods only in place of a node that is out of service."""

from __future__ import annotations

import msgspec
import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.spares import SparesStandIn
from chaos.simulate.world import Simulation
from tests.chaos.invariants.misdeeds import (
    found_after_recovery,
    on_node,
)


def lifted(instead_of: str) -> Object:
    kept = {"at": "2026-11-21T09:00:00Z", "laid": True, "node": instead_of}
    notes = {"spare-for": "i", "spare-kept": msgspec.json.encode(kept).decode()}
    annotations = {f"rekindle.dev/{name}": value for name, value in notes.items()}
    return {"metadata": {"annotations": annotations}, "spec": {"taints": None}}


async def in_reserve(sim: Simulation, node: str) -> None:
    await sim.person.label_spare(node, is_spare=True)
    await sim.person.taint_spare(node, is_spare=True)


def test_a_spare_that_is_let_in_for_a_node_in_service_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await in_reserve(sim, "n5")
        await on_node(sim, "n5", lifted("n4"))

    found = found_after_recovery(act)
    assert found.rules == [SparesStandIn]
    assert all(name in found.said[0] for name in ("n4", "n5"))


def test_a_second_spare_for_one_node_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        for node in ("n4", "n5"):
            await in_reserve(sim, node)
            await on_node(sim, node, lifted("n2"))

    found = found_after_recovery(act)
    assert found.rules == [SparesStandIn]
    assert all(name in found.said[0] for name in ("n2", "n4", "n5"))


def test_a_node_that_is_let_in_though_it_was_no_spare_is_caught() -> None:
    found = found_after_recovery(lambda sim: on_node(sim, "n5", lifted("n2")))

    assert found.rules == [SparesStandIn]


@pytest.mark.parametrize(("effect", "rules"), [("NoSchedule", [SparesStandIn]), ("PreferNoSchedule", [])])
def test_a_spare_that_is_let_in_although_it_is_quarantined_is_caught(
    effect: str, rules: list[type[Check]]
) -> None:
    async def act(sim: Simulation) -> None:
        await in_reserve(sim, "n5")
        patch = lifted("n2")
        taint = {"key": "rekindle.dev/unhealthy", "value": "nvlink", "effect": effect}
        await sim.person.edit_node("n5", {"spec": {"taints": [taint, *sim.node("n5")["spec"]["taints"]]}})
        await on_node(sim, "n5", {**patch, "spec": {"taints": [taint]}})

    assert found_after_recovery(act).rules == rules
