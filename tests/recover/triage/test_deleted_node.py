"""A Node object is deleted and registers again: the machine is the same, and so is its fault."""

from __future__ import annotations

from detectors.wire.contract import NodeHealth
from recover.api import IncidentPhase
from recover.k8s.kinds import NODES
from recover.model import Node
from tests.acting import recovering
from tests.builders import BOOT, Worlds, cluster


def out() -> Worlds:
    world = recovering(cluster(40).finding(on="n1"))
    assert world.nodes["n1"].quarantine is not None
    return world


def deleted(world: Worlds) -> NodeHealth:
    """Deletes the Node as `kubectl delete node` does. Returns the agent's last report, which goes with the
    Node and which the agent will send again."""
    told = world.health.pop("n1")
    world.without_node("n1")
    recovering(world.later(60))
    assert open_ones(world) == []
    return told


def registers(world: Worlds, told: NodeHealth) -> None:
    """Lets the kubelet create the Node again, without anything that Rekindle wrote on it."""
    world.later(60)
    world.nodes["n1"] = Node(name="n1", uid=f"n1-{len(world.incidents)}", version="9", boot_id=BOOT)
    world.health["n1"] = told
    recovering(world)


def open_ones(world: Worlds) -> list[str]:
    return [name for name, i in world.incidents.items() if i.status.phase is IncidentPhase.OPEN]


def test_a_node_that_registers_again_in_the_same_boot_is_taken_out_again_for_an_incident_of_its_own() -> None:
    world = out()
    for again in (2, 3):
        registers(world, deleted(world))

        note = world.nodes["n1"].quarantine
        assert note is not None, "it is as broken as before"
        assert open_ones(world) == [note.incident]
        assert len(world.incidents) == again

    before = dict(world.incidents)
    recovering(world.later(60))
    assert world.incidents == before


def test_what_a_person_had_released_before_does_not_come_back_with_the_node() -> None:
    """The note of the release on the Node is gone, but the closed Incident still exists."""
    world = out().later(300)
    world.change_node("n1", unschedulable=False, taints=())
    recovering(recovering(world))

    registers(world, deleted(world))

    assert world.nodes["n1"].quarantine is None
    assert len(world.incidents) == 1


def test_an_incident_stays_open_while_its_node_only_cannot_be_read() -> None:
    world = out()
    (name,) = open_ones(world)
    del world.nodes["n1"], world.health["n1"]
    world.unread[NODES] = {"n1"}

    recovering(world.later(60))

    assert open_ones(world) == [name]
