"""Finds losses of ranks that another program on the same GPU may have caused. Pure; for gang_faults.py.

If programs share a GPU by MPS, a fatal exception of one client ends all clients that share a GPU with it, and
no log says which client it was. The client that failed uses the GPU of the exception; a client with two GPUs
also ends the clients on its other GPU. MIG separates clients of different GPU instances. If programs share a
GPU in time, each has a separate context, and its exception ends only itself.

The agent publishes which pods use the GPUs while an exception is recent (detectors/folds/core.py). A pod
whose GPUs are unknown may use any GPU. Later these pods leave, and other pods come. The GPUs of the new pods
say nothing about the loss, so the verdict in the open Incident of the loss is kept. Source: NVIDIA,
Multi-Process Service, "Error Containment".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from detectors.wire.contract import Finding, NodeHealth
from detectors.wire.exceptions import is_exception
from recover.api import Blame, IncidentStatus
from recover.diagnose.diagnosis import Loss
from recover.diagnose.holders import Holders, held_by, holders_on
from recover.model import Gang, Node, World
from recover.policy.settings import Timing

__all__ = ["neighbours_fault"]

_BY_MPS = {
    "nvidia.com/gpu.sharing-strategy": "mps",
    "nvidia.com/mps.capable": "true",
    "cloud.google.com/gke-gpu-sharing-strategy": "mps",
}
"""Labels of a node whose GPUs are shared by MPS. Source: NVIDIA k8s-device-plugin, GPU feature discovery;
GKE, "Share GPUs with NVIDIA MPS"."""
_MPS_RESOURCE = "nvidia.com/mps-"


def neighbours_fault(
    world: World, gang: Gang, loss: Loss, known_status: IncidentStatus | None, timing: Timing, now: datetime
) -> str:
    """Returns why the gang's program is not blamed for the loss, or an empty string if no other program may
    have ended the rank. `known_status` is the status of the open Incident of this loss."""
    node, health = world.nodes.get(loss.node), world.health.get(loss.node)
    if node is None or health is None or not _is_shared_by_mps(node):
        return ""
    window = timedelta(seconds=timing.blame_window_s)
    around = [
        finding
        for finding in health.status.findings
        if finding.boot_id == health.status.boot_id
        and is_exception(finding.subject, finding.fault, finding.severity)
        and _is_around(finding, loss, window)
    ]
    if not around or (_tells_cause(known_status) and now > loss.at + window):
        return ""
    known = around[0].code if _blames_nobody(known_status) else ""
    shown = known or _of_neighbour(world, gang, loss, health, around, window)
    if not shown:
        return ""
    return (
        f"there is no culprit, because the kernel log of {node.name} shows {shown}, and other jobs share "
        "the GPUs of the node by MPS. With MPS, an exception of one program ends all programs on "
        "that GPU"
    )


def _tells_cause(known_status: IncidentStatus | None) -> bool:
    """Whether the Incident names a cause: the program, or a resource that the program used up. An exception
    that is reported later than the loss may change that for a while."""
    return known_status is not None and known_status.blame in (Blame.APPLICATION, Blame.RESOURCES)


def _blames_nobody(known_status: IncidentStatus | None) -> bool:
    """Whether the Incident blames nobody, not even the node: the node would be a suspect if its agent had
    been blind."""
    return known_status is not None and known_status.blame is Blame.UNKNOWN and not known_status.suspects


def _is_shared_by_mps(node: Node) -> bool:
    labelled = any(node.labels.get(label) == value for label, value in _BY_MPS.items())
    return labelled or any(resource.startswith(_MPS_RESOURCE) for resource in node.capacity)


def _is_around(finding: Finding, loss: Loss, window: timedelta) -> bool:
    return finding.first_seen - window <= loss.at <= finding.last_seen + window


Held = Mapping[str, frozenset[int]] | None
"""Map from the UUID of a device to its GPU instances; no instance stands for the whole device. None if the
pod may use any device."""


def _of_neighbour(
    world: World, gang: Gang, loss: Loss, health: NodeHealth, around: list[Finding], window: timedelta
) -> str:
    """Returns the code of the first exception that may be a neighbour's, or an empty string."""
    holders = holders_on(health)
    mine = [pod for pod in world.pods_at(gang.ref.uid, loss.node) if pod.uid == loss.pod_uid]
    lost = held_by(mine[0], holders) if mine else holders.by_pod.get(loss.pod_uid)
    running = _neighbours(world, gang, loss.node, holders, loss.at - window)
    neighbours = [held for held in running if _share(held, lost)]
    return next((one.code for one in around if any(_may_have(held, one) for held in neighbours)), "")


def _neighbours(world: World, gang: Gang, node: str, holders: Holders, since: datetime) -> Iterator[Held]:
    """Yields the devices of the other gangs' pods that ran on the node since `since`. The pod that failed
    first may have ended already."""
    others = world.gangs_on.get(node, frozenset()) - {gang.ref.uid}
    for uid in others:
        for pod in world.pods_at(uid, node):
            if pod.may_hold_devices and not pod.had_ended(since):
                yield held_by(pod, holders)


def _share(one: Held, other: Held) -> bool:
    if one is None or other is None:
        return True
    return any(_meet(one[device], other[device]) for device in one.keys() & other.keys())


def _meet(one: frozenset[int], other: frozenset[int]) -> bool:
    return not one or not other or not one.isdisjoint(other)


def _may_have(held: Held, finding: Finding) -> bool:
    """Whether the exception may belong to the pod that uses these devices."""
    device, instance = finding.subject.device, finding.subject.gpu_instance
    if held is None or not device:
        return True
    return device in held and (instance is None or _meet(held[device], frozenset({instance})))
