"""A person deletes a NodeHealth while its node is broken: findings that the agent reports again still
count."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import NodeHealth, ObjectMeta
from recover.api import IncidentPhase
from tests.acting import recovering
from tests.builders import Worlds, cluster


def kept_in_service() -> Worlds:
    """Returns a cluster whose broken n6 stays in service, because n7 uses up the budget."""
    world = recovering(cluster(8).finding(on="n7"))
    recovering(world.later(30).finding(on="n6"))
    assert not world.nodes["n6"].unschedulable
    return world


def open_on(world: Worlds, node: str) -> list[str]:
    found = world.incidents.items()
    return [n for n, i in found if i.spec.node == node and i.status.phase is IncidentPhase.OPEN]


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_dead_gpu_is_not_forgotten_while_the_health_of_its_node_is_missing(
    *, is_created_again: bool
) -> None:
    world = kept_in_service()
    reported = world.health.pop("n6")
    if is_created_again:
        world.health["n6"] = NodeHealth(metadata=ObjectMeta(name="n6"))
    recovering(world.later(30))
    assert len(open_on(world, "n6")) == 1

    world.health["n6"] = reported
    world.change_node("n7", unschedulable=False)  # a person uncordons n7, and the budget has room
    for _ in range(3):
        recovering(world.later(60))

    assert world.nodes["n6"].unschedulable


def test_an_incident_ends_with_its_boot_though_no_agent_reports() -> None:
    world = kept_in_service()
    del world.health["n6"]
    world.change_node("n6", boot_id="a-new-boot")

    recovering(world.later(30))

    assert open_on(world, "n6") == []


def test_an_incident_ends_with_a_release_of_its_node_though_no_agent_reports() -> None:
    world = kept_in_service()
    del world.health["n6"]
    recovering(world.later(30))
    world.nodes["n6"] = msgspec.structs.replace(world.nodes["n6"], released_at=world.now)

    recovering(world.later(30))

    assert open_on(world, "n6") == []
