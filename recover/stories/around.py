"""The objects around a job or a node that its story needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from detectors.wire.contract import NodeHealth
from recover.k8s.kinds import NODES
from recover.model import NamespaceView, Node, Pod
from recover.model.pause import Pause

__all__ = ["Around"]


class Around(msgspec.Struct, frozen=True):
    """By name. What may not be read is empty here, and its plural is among `hidden`."""

    nodes: Mapping[str, Node] = {}
    health: Mapping[str, NodeHealth] = {}
    namespaces: Mapping[str, NamespaceView] = {}
    pods: tuple[Pod, ...] = ()
    """Those of the job, if the story is a job's and they may be read."""
    hidden: Collection[str] = ()
    pause: Pause | None = None
    """The one that is in force."""
    release: str = ""
    """The namespace of Rekindle's Helm release; empty where it is not known."""

    def lacks_node(self, name: str) -> bool:
        """It is known that there is no such Node."""
        return name not in self.nodes and NODES.plural not in self.hidden and bool(self.nodes)
