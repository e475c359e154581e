"""The limits on the number of quarantined nodes, and the brake."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.budgets import BrakeOfOneClass, SoftTaintsAreNotLimited, WithinLimits
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.setup import Setup
from recover.k8s.kinds import NODES
from tests.chaos.invariants.misdeeds import (
    WIDE,
    found_after_recovery,
    found_of,
    incident,
    on_node,
    quarantine,
    taken_out,
)


@pytest.mark.parametrize(
    ("shape", "budgets", "names"),
    [
        ({}, {}, []),
        ({}, {"quarantined_percent_max": 20.0}, ["2 of 8"]),
        ({}, {"quarantined_nodes_max": 1}, ["2 of 8"]),
        ({}, {"quarantines_per_hour_max": 1}, ["2 "]),
        ({"per_rack": 4}, {}, ["2 of 4", "rack-0"]),
        ({"per_rack": 4}, {"domain_nodes_max": 2}, []),
        ({"per_pool": 4}, {"pool_percent_max": 25.0}, ["2 of 4", "pool-0"]),
        ({"per_pool": 1}, {"pool_percent_max": 25.0}, []),
    ],
)
def test_a_quarantine_beyond_a_limit_is_caught(
    shape: dict[str, Any], budgets: dict[str, Any], names: list[str]
) -> None:
    async def act(sim: Simulation) -> None:
        await taken_out(sim, "n1")
        await taken_out(sim, "n2")

    wide = msgspec.structs.replace(WIDE.budgets, **budgets)
    setup = Setup(nodes=8, settings=msgspec.structs.replace(WIDE, budgets=wide), **shape)
    found = found_of(act, setup)
    assert found.rules == ([WithinLimits] if names else [])
    assert all(name in found.said[0] for name in names)


def test_a_second_quarantine_beyond_the_budget_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.FALLEN_OFF_THE_BUS)
        await on_node(sim, "n3", quarantine())

    found = found_after_recovery(act)
    assert found.rules == [WithinLimits]
    assert "2 of 6" in found.said[0]


def test_a_node_that_its_incident_takes_out_twice_is_one_of_the_hour() -> None:
    async def act(sim: Simulation) -> None:
        await taken_out(sim, "n1")
        released: Object = {"spec": {"unschedulable": None, "taints": None}}
        await sim.cluster.client("person").patch(NODES, "n1", released)
        await taken_out(sim, "n1")

    one = msgspec.structs.replace(WIDE.budgets, quarantines_per_hour_max=1)
    assert found_of(act, Setup(nodes=8, settings=msgspec.structs.replace(WIDE, budgets=one))).rules == []


def test_a_soft_taint_takes_no_place_of_a_broken_node() -> None:
    async def act(sim: Simulation) -> None:
        await taken_out(sim, "n1", "PreferNoSchedule")
        await taken_out(sim, "n2")

    assert found_of(act, Setup(nodes=8, per_rack=4, settings=WIDE)).rules == []


@pytest.mark.parametrize(
    ("line", "rules"), [(lines.CONTAINED, [SoftTaintsAreNotLimited]), (lines.NVLINK_ERROR, [])]
)
def test_a_limit_that_keeps_a_soft_taint_off_a_node_is_caught(
    line: lines.KernelText, rules: list[type[Check]]
) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", line)
        refusal = {"action": "quarantine-node", "target": "n3", "outcome": "refused"}
        refusal |= {"reason": "BudgetExhausted", "at": sim.clock.now().isoformat()}
        await incident(sim, "n3-nvlink-1", {"fault": "nvlink", "node": "n3"}, {"actions": [refusal]})

    assert found_of(act).rules == rules


def test_the_fifth_node_of_one_class_within_the_window_is_caught_unless_the_brake_stops_it() -> None:
    async def act(sim: Simulation) -> None:
        for number in range(1, 6):
            name, node = f"n{number}-nvlink-1", f"n{number}"
            await incident(sim, name, {"fault": "nvlink", "node": node})
            await taken_out(sim, node, incident=name)

    found = found_of(act, Setup(nodes=8, settings=WIDE))
    assert found.rules == [BrakeOfOneClass]
    assert all(name in found.said[0] for name in ("5 of 8", "nvlink"))
