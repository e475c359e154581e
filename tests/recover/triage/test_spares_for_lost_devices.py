"""Tests spares in place of nodes that offer too few devices for a gang: a GPU may be gone after a reboot, and
no node is cordoned for that alone."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from tests.acting import advanced, end_pods, only_recovery, recovering, start_pods, step
from tests.builders import Worlds, gang
from tests.recover.triage.spare_cases import comes_to_rest, lent, spares
from tests.recover.triage.test_capacity import occupied, template


@pytest.mark.parametrize("left", [7, 0])
def test_a_node_that_lacks_devices_lets_a_spare_in_while_its_gang_waits_for_room(left: int) -> None:
    world = lets_the_spare_in(left)
    assert lent(world) == {"n7": "n1"}

    assert step(world) == ["recovery-resuming"]
    assert "start-gang" in step(world)
    assert comes_to_rest(world) == [], "its pods have no place yet"
    world.recoveries.clear()
    assert comes_to_rest(world) == ["return-spare n7"]


def test_a_spare_serves_as_long_as_a_gang_on_it_finds_too_few_devices_on_the_node_it_left() -> None:
    """The gang that recovered still needs the spare's place when it crashes again."""
    world = trains_on_the_spare()
    assert comes_to_rest(world) == []

    recovering(world.later(3600).crash("llm", rank=2))
    advanced(world, Phase.RESUMING)
    assert comes_to_rest(world) == [], "the gang is about to start on the spare again"
    runs_on_the_spare(world)
    assert comes_to_rest(world) == []

    devices(world, "n1", 8)
    assert comes_to_rest(world) == ["return-spare n7"]


def test_a_spare_returns_when_the_gang_that_needed_it_has_ended() -> None:
    world = trains_on_the_spare()

    end_pods(world)
    assert comes_to_rest(world) == ["return-spare n7"]


def test_a_gang_that_waits_for_nodes_that_others_use_lets_no_spare_in() -> None:
    world = full_cluster()
    recovering(world.crash("llm", rank=1))
    for name in ("n0", "n1"):
        occupied(world, name)
    advanced(world, Phase.BLOCKED)
    assert only_recovery(world).status.reason == Reason.NO_CAPACITY

    assert comes_to_rest(world) == []


def full_cluster() -> Worlds:
    """Returns a cluster without a free node, except for the spare n7. The gang runs on n0 to n3."""
    world = spares("n7", nodes=8)
    for name in ("n4", "n5", "n6"):
        occupied(world, name)
    return world.running(gang(templates={"Worker": template()}))


def devices(world: Worlds, name: str, left: int) -> None:
    capacity = max(7, left)
    world.change_node(name, allocatable={"nvidia.com/gpu": left}, capacity={"nvidia.com/gpu": capacity})


def lets_the_spare_in(left: int = 7) -> Worlds:
    """Returns a cluster whose node n1 has lost devices. Its gang has crashed and waits; the spare serves."""
    world = full_cluster()
    devices(world, "n1", left)
    recovering(world.crash("llm", rank=1))
    assert comes_to_rest(world) == []
    advanced(world, Phase.BLOCKED)
    assert only_recovery(world).status.reason == Reason.NO_CAPACITY
    assert comes_to_rest(world) == ["lift-spare n7"]
    return world


def trains_on_the_spare() -> Worlds:
    """Returns a cluster in which the gang has recovered with the spare in place of n1."""
    world = lets_the_spare_in()
    advanced(world, Phase.RESUMING)
    runs_on_the_spare(world)
    return world


def runs_on_the_spare(world: Worlds) -> None:
    """Starts the gang, lets the scheduler place its ranks, and ends the recovery."""
    step(world)
    start_pods(world)
    pods = world.pods["llm-uid"]
    for uid, node in zip(list(pods), ("n0", "n7", "n2", "n3"), strict=True):
        pods[uid] = msgspec.structs.replace(pods[uid], node=node)
    world.change_gang(suspended=False)
    world.recoveries.clear()
