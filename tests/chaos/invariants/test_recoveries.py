"""Each gang has one recovery at a time, and no recovery continues after its end."""

from __future__ import annotations

import pytest

from chaos.invariants.recoveries import OneRecoveryAtATime
from chaos.simulate.world import CONTROLLER, Simulation
from recover.k8s.bodies import body
from recover.k8s.kinds import RECOVERIES
from tests.chaos.invariants.misdeeds import facts, found_after_recovery, found_by, written


def test_two_active_recoveries_of_one_gang_are_caught() -> None:
    async def act(sim: Simulation) -> None:
        spec = sim.recovery().spec
        for name in ("a", "b"):
            twin = body(RECOVERIES, name, spec=spec)
            await sim.cluster.client(CONTROLLER).create(RECOVERIES, twin, "ml")

    assert found_after_recovery(act).rules == [OneRecoveryAtATime]


@pytest.mark.parametrize(
    ("before", "after", "is_caught"),
    [("Failed", "Planned", True), ("Failed", "Failed", False), ("Blocked", "Planned", False)],
)
def test_a_recovery_that_goes_on_after_its_end_is_caught(before: str, after: str, is_caught: bool) -> None:
    old, new = ({"status": {"phase": phase}} for phase in (before, after))

    found = found_by(OneRecoveryAtATime(facts()), written(RECOVERIES, new, old=old))
    assert [before in said and after in said for said in found] == [True] * is_caught
