"""Devices that kubelets report as unhealthy, in the status of the pods that hold them. Pure; part of
what_counts.py.

The word is that of a device plugin or a DRA driver. Kubernetes calls it temporary, and does not tell since
when it stands (KEP-4680), so nobody could tell whether a release has answered it: it makes the node suspect
and is never more. A kubelet keeps the last word on a pod that has ended, so that word fades with time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Origin, Subject, SubjectKind
from detectors.wire.fitting import fitted
from recover.diagnose.set_aside import aside_origins
from recover.model import Pod, UnhealthyDevice, World

__all__ = ["CODE", "DeviceWord", "device_words", "doubted_by_kubelets"]

CODE = "device-unhealthy"


class DeviceWord(msgspec.Struct, frozen=True):
    """One device, and the pods that hold it."""

    subject: Subject
    resource: str
    message: str
    pods: tuple[str, ...]
    """`namespace/name`, in order."""


def device_words(pods: Iterable[Pod], now: datetime, window_s: float) -> list[DeviceWord]:
    """What the kubelet of one node says in the status of these pods of the node, by device."""
    found: dict[str, tuple[UnhealthyDevice, list[str]]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        if _is_current(pod, now, window_s):
            for one in pod.unhealthy:
                found.setdefault(one.device, (one, []))[1].append(f"{pod.namespace}/{pod.name}")
    return [
        DeviceWord(
            subject=fitted(Subject, kind=SubjectKind.DEVICE, device=device),
            resource=one.resource,
            message=one.message,
            pods=tuple(names),
        )
        for device, (one, names) in sorted(found.items())
    ]


def doubted_by_kubelets(world: World, now: datetime, window_s: float) -> dict[str, str]:
    """Nodes of which their kubelet says so, and the code. While somebody works on the node's driver, the
    device plugin is being replaced, too."""
    return {
        name: CODE
        for name, pods in sorted(world.complaining.items())
        if (node := world.nodes.get(name)) is not None
        and Origin.VENDOR not in aside_origins(node, now)
        and any(_is_current(pod, now, window_s) for pod in pods.values())
    }


def _is_current(pod: Pod, now: datetime, window_s: float) -> bool:
    """Of a living pod, or of one that ended a while ago; when a pod ended, its containers tell."""
    if not pod.ended:
        return True
    ends = [one.finished_at for one in pod.containers if one.finished_at is not None]
    return bool(ends) and max(ends) >= now - timedelta(seconds=window_s)
