"""Tests a node's fault that triage writes into a Recovery while the recovery loop starts the gang."""

from __future__ import annotations

import pytest

from recover.api import Phase
from recover.recovery.advance import advance
from recover.triage.plan import plan
from tests.acting import acts, advanced, apply, only_recovery, recovering, start_pods, step
from tests.builders import Worlds, cluster, gang


def told_while_started() -> Worlds:
    """Runs both loops at once: the recovery loop starts the gang, and triage has just found that n2 is
    broken."""
    world = recovering(cluster(40).running(gang(ranks=4)).finding(on="n1"))
    advanced(world, Phase.RESUMING)
    started = advance(only_recovery(world), world.world(), world.settings, world.now)
    told = plan(world.finding(on="n2").world(), world.settings, world.now)
    assert (acts(started), "tell-recovery" in acts(told)) == (["start-gang"], True)
    apply(world, started)
    apply(world, told)
    return world.later(2)


@pytest.mark.parametrize("is_pending_first", [False, True])
def test_a_gang_that_has_left_the_node_is_not_stopped_again(*, is_pending_first: bool) -> None:
    world = told_while_started()
    if is_pending_first:
        start_pods(world, running=False)
        step(world)
        world.pods["llm-uid"].clear()
    start_pods(world, first_node=4)

    for _ in range(4):
        step(world.later(1))

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.VERIFYING, 1)
    assert [cause.node for cause in status.causes] == ["n1", "n2"]
    assert step(world) == []


def test_a_gang_that_was_started_on_the_node_is_stopped_again() -> None:
    world = told_while_started()
    start_pods(world, first_node=2)

    step(world.later(1))

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 2)
