"""An Incident of a node closes only once nothing is left of it."""

from __future__ import annotations

import pytest

from chaos.invariants.closes import ClosesWhenOver
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated import lines
from recover.k8s.kinds import INCIDENTS
from tests.chaos.invariants.misdeeds import found_of, incident, taken_out

_SPEC = {"fault": "device-lost", "node": "n2"}


async def _closed(sim: Simulation, name: str, **status: object) -> None:
    api = sim.cluster.client(CONTROLLER)
    version = sim.cluster.store.read(INCIDENTS, name).body["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "status": {"phase": "Closed", **status}}
    await api.patch(INCIDENTS, name, patch, subresource="status")


def test_an_incident_that_closes_while_its_node_is_out_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await incident(sim, "i", _SPEC, {"phase": "Open"})
        await taken_out(sim, "n2", incident="i")
        await _closed(sim, "i")

    found = found_of(act)
    assert ClosesWhenOver in found.rules
    assert "quarantined" in found.said[-1]


def test_a_repair_that_is_over_closes_its_incident_before_it_lets_the_node_in() -> None:
    async def act(sim: Simulation) -> None:
        await incident(sim, "i", _SPEC, {"phase": "Open"})
        await taken_out(sim, "n2", incident="i")
        await _closed(sim, "i", repair={"phase": "Returned", "attempt": 1})

    assert ClosesWhenOver not in found_of(act).rules


@pytest.mark.parametrize(
    ("shown_s", "code", "goes_on", "is_caught"),
    [
        (100, "xid-79", False, True),
        (20, "xid-79", False, False),
        (100, "xid-48", False, False),
        (100, "xid-79", True, False),
    ],
)
def test_an_incident_that_closes_while_its_fault_is_shown_is_caught(
    shown_s: float, code: str, goes_on: bool, is_caught: bool
) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        seen = {"at": "2026-11-21T09:00:00Z", "origin": "driver", "code": code, "node": "n2"}
        for name in ("i", "other") if goes_on else ("i",):
            await incident(sim, name, _SPEC, {"phase": "Open", "evidence": [seen]})
        await sim.passes(shown_s)
        await _closed(sim, "i")

    assert found_of(act).rules == [ClosesWhenOver] * is_caught
