"""Tests what the close of an Incident answers. The close never makes Rekindle forget a dead GPU."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault, Severity
from recover.api import IncidentPhase
from tests.acting import recovering
from tests.builders import Worlds, cluster


def weak(world: Worlds, node: str) -> Worlds:
    return world.finding(on=node, code="xid-61", fault=Fault.UNKNOWN, severity=Severity.PENDING, final=False)


def test_a_second_incident_that_a_late_watch_led_to_hides_no_dead_gpu_when_it_closes() -> None:
    world = recovering(cluster(8).finding(on="n7"))  # n7 uses up the budget
    others = dict(world.incidents)
    recovering(weak(world.later(30), "n6"))
    first = {name: i for name, i in world.incidents.items() if name not in others}
    world.incidents = dict(others)  # the cache does not have the new Incident yet
    recovering(world.later(1).finding(on="n6"))
    world.incidents = {**world.incidents, **first}
    assert sum(i.spec.node == "n6" for i in world.incidents.values()) == 2

    for _ in range(4):
        recovering(world.later(60))
    still = [
        i for i in world.incidents.values() if i.spec.node == "n6" and i.status.phase is IncidentPhase.OPEN
    ]
    assert len(still) == 1
    world.change_node("n7", unschedulable=False)  # a person uncordons n7, and the budget has room
    for _ in range(3):
        recovering(world.later(60))

    assert world.nodes["n6"].unschedulable


@pytest.mark.parametrize("ago_s", [1.0, 30.0])
def test_a_dead_gpu_counts_that_its_agent_dates_just_before_the_close_of_a_weak_incident(
    ago_s: float,
) -> None:
    """The agent reports the fault a moment later, or the agent's clock is behind."""
    world = recovering(weak(cluster(8), "n6"))
    world.later(60)
    health = world.health["n6"]
    (found,) = health.status.findings
    status = msgspec.structs.replace(
        health.status, findings=[msgspec.structs.replace(found, cleared_at=world.now)]
    )
    world.health["n6"] = msgspec.structs.replace(health, status=status)
    recovering(world)
    assert [i.status.phase for i in world.incidents.values()] == [IncidentPhase.CLOSED]

    recovering(world.later(0.2).finding(on="n6", ago_s=ago_s))

    assert world.nodes["n6"].unschedulable


def test_an_incident_stays_open_while_the_quarantine_for_it_is_being_written() -> None:
    """The write takes seconds if the API server is slow, and meanwhile the agent may withdraw the finding."""
    world = recovering(weak(cluster(8), "n6"))
    health = world.health["n6"]
    status = msgspec.structs.replace(health.status, findings=[])
    world.health["n6"] = msgspec.structs.replace(health, status=status)
    world.being_quarantined = {"n6"}

    recovering(world.later(60))
    assert [i.status.phase for i in world.incidents.values()] == [IncidentPhase.OPEN]
    world.being_quarantined = set()
    recovering(world.later(1))

    assert [i.status.phase for i in world.incidents.values()] == [IncidentPhase.CLOSED]
