"""Reads the devices that kubelets report as unhealthy, in the status of the pods that use them. Pure; part of
what_counts.py.

The report comes from a device plugin or a DRA driver. Kubernetes calls the state temporary, and does not say
since when it exists (KEP-4680), so nobody could tell whether the end of a quarantine has answered it: the
report makes the node a suspect and never more. A kubelet keeps the last report on a pod that has ended, so
such a report expires with time.
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
    """One device, and the pods that use it."""

    subject: Subject
    resource: str
    message: str
    pods: tuple[str, ...]
    """Pods as `namespace/name`, in order."""


def device_words(pods: Iterable[Pod], now: datetime, window_s: float) -> list[DeviceWord]:
    """Returns the unhealthy devices that the kubelet of one node reports in the status of these pods of the
    node, by device."""
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
    """Returns the nodes whose kubelet reports an unhealthy device, and the code. Reports do not count while
    somebody works on the node's driver, because the device plugin is then being replaced, too."""
    return {
        name: CODE
        for name, pods in sorted(world.complaining.items())
        if (node := world.nodes.get(name)) is not None
        and Origin.VENDOR not in aside_origins(node, now)
        and any(_is_current(pod, now, window_s) for pod in pods.values())
    }


def _is_current(pod: Pod, now: datetime, window_s: float) -> bool:
    """Whether the report on the pod still counts: the pod lives, or ended within the window. The containers
    of the pod say when it ended."""
    if not pod.ended:
        return True
    ends = [one.finished_at for one in pod.containers if one.finished_at is not None]
    return bool(ends) and max(ends) >= now - timedelta(seconds=window_s)
