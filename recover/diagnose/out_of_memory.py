"""Tells whether the kernel's out-of-memory killer ended a pod or struck a node, from the kernel log that the
agents read. Pure; for ranks.py and verdicts.py.

The kubelet names this reason only if it learned of it. It does not learn of it if a launcher ended by itself
after the kernel had killed a worker below the launcher.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from recover.model import Pod, World

__all__ = ["OOM_KILLED", "node_ran_out", "pod_ran_out"]

OOM_KILLED = "oom-killed"
"""Code of the loss of a rank that the out-of-memory killer ended."""
_OF_POD, _OF_NODE = "oom-of-pod", "oom-of-node"
_DYING = timedelta(minutes=2)
"""Time that a launcher may take to end once a worker is gone."""
_SECOND = timedelta(seconds=1)
"""Rounding of the end of a container: the API keeps whole seconds."""


def pod_ran_out(world: World, pod: Pod, at: datetime | None) -> bool:
    """Whether the kernel killed a process at the memory limit of this pod, shortly before `at`."""
    return _shown(world, pod.node, _OF_POD, pod.uid, at)


def node_ran_out(world: World, node: str, at: datetime) -> bool:
    """Whether the kernel killed a process because the node itself had no memory left, shortly before `at`."""
    return _shown(world, node, _OF_NODE, "", at)


def _shown(world: World, node: str, code: str, pod: str, at: datetime | None) -> bool:
    health = world.health.get(node)
    if health is None or at is None:
        return False
    return any(
        (finding.code, finding.subject.pod) == (code, pod) and at - _DYING <= finding.last_seen < at + _SECOND
        for finding in health.status.findings
    )
