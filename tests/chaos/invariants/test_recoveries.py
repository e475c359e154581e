"""Each gang has one recovery at a time, and no recovery continues after its end."""

from __future__ import annotations

import pytest

from chaos.invariants.recoveries import EndsOffClosedNodes, OneRecoveryAtATime
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from recover.k8s.bodies import body
from recover.k8s.kinds import RECOVERIES
from tests.chaos.invariants.misdeeds import (
    facts,
    found_after_recovery,
    found_by,
    judged,
    on_recovery,
    written,
)


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


@pytest.mark.parametrize("is_late", [True, False])
def test_a_recovery_that_succeeds_on_the_node_that_it_has_left_is_caught(*, is_late: bool) -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(65)
        if is_late:
            sim.cluster.scheduler.nodes_stand_still()
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: len(sim.recoveries()) == 1, within_s=60)
        await sim.passes(5)
        sim.kill_controller()
        assert not sim.is_suspended(), "it was started again"
        await sim.passes(95)
        await on_recovery(sim, {"phase": "Succeeded"})

    assert judged(story).rules == [EndsOffClosedNodes] * is_late
