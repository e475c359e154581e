"""Finds ranks that may make steps although all ranks with a readable log have stalled. Pure.

Some trainings print their first steps on all ranks, and later steps only on rank 0. If nobody reads the log
of rank 0, because its node has no agent, then the silence of the other ranks proves nothing. Two kinds of
pods do not count: a pod without devices, such as a parameter server on a node that no agent watches, and a
pod on a node that is not ready, because the node is probably dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from detectors.wire.training import Edge, PodProgress
from recover.diagnose.first_step import is_read
from recover.model import Pod, World

__all__ = ["unread_on"]


_FIRST_STEPS, _SOON = 50, timedelta(minutes=10)
"""Number of steps, and time, beyond which a rank that prints steps prints more than its first steps."""


def unread_on(world: World, pods: Sequence[Pod], now: datetime) -> tuple[str, ...]:
    """Returns the nodes of these ranks. Returns none if a rank that is read proves that the training has
    stopped."""
    told = [world.progress(pod) for pod in pods]
    if any(one is not None and _proves_a_stop(one) for one in told):
        return ()
    unread = (
        pod.node
        for pod, one in zip(pods, told, strict=True)
        if pod.node and pod.may_hold_devices and not pod.ended and (one is None or one.first_step is None)
        if _is_ready(world, pod.node) and not is_read(world, pod, now)
    )
    return tuple(sorted(set(unread)))


def _is_ready(world: World, name: str) -> bool:
    node = world.nodes.get(name)
    return node is None or node.ready


def _proves_a_stop(stalled: PodProgress) -> bool:
    """Whether the rank had printed so many steps, or for so long, that it did not only print its first
    steps."""
    if stalled.edge is not Edge.STALLED:
        return False
    first, last = stalled.first_step, stalled.last_step
    first_at, last_at = stalled.first_step_at, stalled.last_step_at
    if first is not None and last is not None and abs(last - first) >= _FIRST_STEPS:
        return True
    return first_at is not None and last_at is not None and last_at - first_at > _SOON
