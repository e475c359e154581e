"""Finds the pods of agents, and decides what is kept of them. runtime/kept.py and runtime/changes.py call
it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from recover.k8s.pod_specs import ConditionView
from recover.model import AgentPod, Pod

__all__ = ["AGENT_LABELS", "AgentPods", "agent_pod", "is_agent"]

AGENT_LABELS = {"app.kubernetes.io/name": "rekindle", "app.kubernetes.io/component": "agent"}
"""Labels that the chart writes on the pods of its DaemonSet."""


_STARTING = timedelta(seconds=10)
"""Time within which the kubelet's first report of a pod comes after the pod's creation."""


class _Status(msgspec.Struct):
    conditions: list[ConditionView] = []


class _Pod(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


def is_agent(labels: Mapping[str, str]) -> bool:
    """Whether the labels are those of an agent. Anybody may write these labels, so call this only for pods in
    our own namespace, where nobody else may write."""
    return AGENT_LABELS.items() <= labels.items()


def agent_pod(raw: bytes, pod: Pod) -> AgentPod | None:
    """Returns the view of an agent's pod, or None for a pod that has no node yet or has ended."""
    if not pod.node or pod.ended:
        return None
    if pod.deleting_since is not None:
        return AgentPod(pod.node, pod.uid, ready=False, since=pod.deleting_since)
    conditions = msgspec.json.decode(raw, type=_Pod).status.conditions
    said = next((c for c in conditions if c.type == "Ready"), None)
    if said is None:
        return AgentPod(pod.node, pod.uid, ready=False)
    return AgentPod(pod.node, pod.uid, ready=said.status == "True", since=_after_start(said, pod))


def _after_start(said: ConditionView, pod: Pod) -> datetime | None:
    """Returns since when the agent is ready, or not ready. A pod is not ready at its start, so only a later
    change shows until when it was ready. Returns None for an earlier change, and if the time is unknown."""
    at, created = said.changed_at, pod.created
    return None if at is None or created is None or at - created <= _STARTING else at


class AgentPods:
    """The agents' pods by node. A node has one agent, and two for a moment while one is replaced."""

    def __init__(self) -> None:
        self.by_node: dict[str, AgentPod] = {}
        """Node -> the ready pod of its agent, or the pod that changed last if none is ready."""
        self._of: dict[str, dict[str, AgentPod]] = {}

    def change(self, old: AgentPod | None, new: AgentPod | None) -> set[str]:
        """Takes a change of a pod. Returns the nodes whose agent became ready, or is no longer ready."""
        changed: set[str] = set()
        for pod, is_there in ((old, False), (new, True)):
            if pod is None:
                continue
            before = self.by_node.get(pod.node)
            pods = self._of.setdefault(pod.node, {})
            pods.pop(pod.uid, None)
            if is_there:
                pods[pod.uid] = pod
            after = next((p for p in pods.values() if p.ready), next(reversed(pods.values()), None))
            if after is None:
                self.by_node.pop(pod.node, None)
                del self._of[pod.node]
            else:
                self.by_node[pod.node] = after
            if (before is not None and before.ready) is not (after is not None and after.ready):
                changed ^= {pod.node}
        return changed
