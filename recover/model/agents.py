"""Agents as decisions see them: whether the pod that watches a node is there and ready."""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["AgentPod"]


class AgentPod(msgspec.Struct, frozen=True):
    """The pod of one node's agent."""

    node: str
    uid: str
    ready: bool
    """An agent is ready once it has read the kernel log, and while its NodeHealth answers it."""
    since: datetime | None = None
    """When that began, by the API server's or the kubelet's word; None for one that was never ready yet."""
