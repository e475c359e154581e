"""A rank's end that may be the doing of another program on its GPU. Pure; for gang_faults.py.

Where programs share a GPU by MPS, a fatal exception of one client ends all clients on that GPU, and nobody is
told which of them it was. Where they share it in time, each has a context of its own, and suffers for itself
alone. Source: NVIDIA, Multi-Process Service, "Error Containment".
"""

from __future__ import annotations

from datetime import timedelta

from detectors.wire.contract import Fault, Finding, Severity, SubjectKind
from recover.diagnose.diagnosis import Loss
from recover.model import Gang, Node, World
from recover.policy.settings import Timing

__all__ = ["neighbours_fault"]

_BY_MPS = {
    "nvidia.com/gpu.sharing-strategy": "mps",
    "nvidia.com/mps.capable": "true",
    "cloud.google.com/gke-gpu-sharing-strategy": "mps",
}
"""Labels of a node. Source: NVIDIA k8s-device-plugin, GPU feature discovery; GKE, "Share GPUs with NVIDIA
MPS"."""
_MPS_RESOURCE = "nvidia.com/mps-"


def neighbours_fault(world: World, gang: Gang, loss: Loss, timing: Timing) -> str:
    """Why the gang's program is not blamed for the loss; empty where no other program may have ended it."""
    node, health = world.nodes.get(loss.node), world.health.get(loss.node)
    if node is None or health is None or not _is_shared_by_mps(node):
        return ""
    window = timedelta(seconds=timing.blame_window_s)
    shown = [
        finding.code
        for finding in health.status.findings
        if finding.boot_id == health.status.boot_id
        and _is_exception(finding)
        and _is_around(finding, loss, window)
    ]
    if not shown or not _has_neighbours(world, gang, node):
        return ""
    return (
        f"there is no culprit: the kernel log of {node.name} shows {shown[0]}, and other jobs share "
        "the GPUs of the node by MPS. With MPS, an exception of one program ends all programs on "
        "that GPU"
    )


def _is_shared_by_mps(node: Node) -> bool:
    labelled = any(node.labels.get(label) == value for label, value in _BY_MPS.items())
    return labelled or any(resource.startswith(_MPS_RESOURCE) for resource in node.capacity)


def _is_exception(finding: Finding) -> bool:
    """A program's own fatal fault on a GPU, by the driver's word."""
    is_of_device = finding.subject.kind is SubjectKind.DEVICE
    return is_of_device and finding.fault is Fault.APPLICATION and finding.severity is Severity.FATAL


def _is_around(finding: Finding, loss: Loss, window: timedelta) -> bool:
    return finding.first_seen - window <= loss.at <= finding.last_seen + window


def _has_neighbours(world: World, gang: Gang, node: Node) -> bool:
    """Pods of others that are there, or ended there: the one that failed first may have ended already."""
    others = world.gangs_on.get(node.name, frozenset()) - {gang.ref.uid}
    pods = (pod for uid in others for pod in world.pods_at(uid, node.name))
    return any(pod.may_hold_devices for pod in pods)
