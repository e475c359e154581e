"""The objects around a job or a node that a story about it needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from recover.k8s.kinds import NODES
from recover.model import AgentPod, NamespaceView, Node, Pod
from recover.model.pause import Pause

__all__ = ["Around"]


class Around(msgspec.Struct, frozen=True):
    """Objects by name. A kind that may not be read is empty here, and its plural is in `hidden`."""

    nodes: Mapping[str, Node] = {}
    namespaces: Mapping[str, NamespaceView] = {}
    pods: tuple[Pod, ...] = ()
    """Pods of the job or some pods of the node, if they may be read."""
    agents: Mapping[str, AgentPod] | None = None
    """Pods of agents by node; None if agents are no pods, or cannot be read. Only the story of a node needs
    them."""
    hidden: Collection[str] = ()
    pause: Pause | None = None
    """The pause that is in force."""
    release: str = ""
    """The namespace of Rekindle's Helm release; empty if it is not known."""

    def lacks_node(self, name: str) -> bool:
        """Whether it is certain that there is no Node of this name."""
        return name not in self.nodes and NODES.plural not in self.hidden and bool(self.nodes)
