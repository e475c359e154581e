"""The nodes and gangs that a look is about. The rest of the world is only looked up. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from detectors.wire.contract import NodeHealth
from recover.model import Gang, Node, World

__all__ = ["Subjects"]


class Subjects(msgspec.Struct, frozen=True):
    nodes: Mapping[str, Node]
    health: Mapping[str, NodeHealth]
    """What the agents of nodes report, by the node's name."""
    gangs: Mapping[str, Gang]
    """By uid."""

    @classmethod
    def all_of(cls, world: World) -> Subjects:
        return cls(world.nodes, world.health, world.gangs)
