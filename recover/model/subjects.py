"""What a look is about: of a large cluster the few nodes, reports and gangs of which something may have to be
decided. All others are only looked up."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from detectors.wire.contract import NodeHealth
from recover.model.gangs import Gang
from recover.model.nodes import Node

__all__ = ["Subjects"]


class Subjects(msgspec.Struct, frozen=True):
    """Whoever leaves out a subject must know that no decision is about it (triage/ordinary.py). A subject too
    many costs time, and changes nothing."""

    nodes: Mapping[str, Node]
    """By name."""
    health: Mapping[str, NodeHealth]
    """What the agents of nodes report, by the node's name."""
    gangs: Mapping[str, Gang]
    """By uid."""
    untold: Mapping[str, Node]
    """Nodes whose NodeHealth may be missing, or may not say what their agent should do."""
    unseen: Mapping[str, Node]
    """Accelerator nodes of which no agent reports, or whose agent does not read one of its sources."""
    strangers: Collection[str]
    """Names of nodes that pods of gangs name, and that are not in the cache."""
