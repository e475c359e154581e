"""Finds nodes that an object names and that are not in the cache. Such nodes are read live before anything is
decided from their absence. Pure.

Watches of pods and of Nodes are independent. A pod may be seen before its Node, if the Node has just joined,
and a watch of Nodes may be broken for a while.
"""

from __future__ import annotations

from collections.abc import Iterator

from recover.api import IncidentPhase
from recover.k8s.kinds import NODES
from recover.model import World
from recover.model.actions import ConfirmGone

__all__ = ["unconfirmed"]


def unconfirmed(world: World) -> Iterator[ConfirmGone]:
    """Yields the live reads that are needed now. Each read is requested until it is answered, and not
    again."""
    named = set(world.subjects.uncached_nodes)
    for recovery in world.recoveries.values():
        named |= set(recovery.nodes) if recovery.active else set()
    for incident in world.incidents.values():
        repair = incident.status.repair
        if incident.status.phase is IncidentPhase.OPEN or (repair is not None and repair.active):
            named |= {incident.spec.node, *incident.status.members}
    for name in sorted(named):
        if name and world.is_unsure_of_node(name):
            yield ConfirmGone(what="confirm-node-gone", resource=NODES, name=name)
