"""Each accelerator node has a NodeHealth. The controller creates one if there is none, and only then."""

from __future__ import annotations

import msgspec

from recover.k8s.kinds import NODEHEALTHS
from recover.model import World
from recover.model.actions import Create
from recover.triage.nodehealths import upkeep
from tests.builders import cluster


def without_health(node: str, **known: object) -> World:
    world = cluster(nodes=2).world()
    health = {name: one for name, one in world.health.items() if name != node}
    return msgspec.structs.replace(world, health=health, **known)


def test_one_that_is_missing_is_made_and_belongs_to_its_node() -> None:
    (made,) = upkeep(without_health("n1")).actions

    assert isinstance(made, Create)
    assert (made.resource, made.name) == (NODEHEALTHS, "n1")
    assert made.body["metadata"]["ownerReferences"][0]["name"] == "n1"


def test_one_that_cannot_be_read_is_there_all_the_same() -> None:
    """A newer agent may write fields that this controller does not know. To create the NodeHealth again
    would fail at each reconcile pass."""
    assert upkeep(without_health("n1", unread={NODEHEALTHS: {"n1"}})).actions == ()
