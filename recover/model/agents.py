"""Defines the agents as decisions see them: whether the pod that watches a node exists and is ready."""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["AgentPod"]


class AgentPod(msgspec.Struct, frozen=True):
    """The pod of one node's agent."""

    node: str
    uid: str
    ready: bool
    """Whether the agent is ready. It is ready once it has read the kernel log, and as long as its NodeHealth
    can be written."""
    since: datetime | None = None
    """Time of the last change of `ready`, by the API server's or the kubelet's clock. None if this change
    came within seconds of the pod's creation, as in a pod that was never ready, or if nobody provides the
    time."""
