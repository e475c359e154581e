"""Defines the subjects of a reconcile: the few nodes, reports and gangs of a large cluster about which a
decision may be needed. All other objects are only looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from detectors.wire.contract import NodeHealth
from recover.model.gangs import Gang
from recover.model.nodes import Node

__all__ = ["Subjects"]


class Subjects(msgspec.Struct, frozen=True):
    """The subjects. A subject may be left out only if no decision is about it (triage/ordinary.py). A
    superfluous subject costs time and changes nothing."""

    nodes: Mapping[str, Node]
    """Nodes by name."""
    health: Mapping[str, NodeHealth]
    """Reports of agents, by the node's name."""
    gangs: Mapping[str, Gang]
    """Gangs by uid."""
    outdated_specs: Mapping[str, Node]
    """Nodes whose NodeHealth may be missing, or may have an outdated spec."""
    unseen: Mapping[str, Node]
    """Accelerator nodes without a reporting agent, or with an agent that does not read one of its sources."""
    uncached_nodes: Collection[str]
    """Names of nodes that pods of gangs name and that are not in the cache."""
