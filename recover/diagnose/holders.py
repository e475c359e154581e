"""Which of a node's findings harm a gang: those of devices that its pods hold, or may hold. Pure.

A pod whose devices the agent does not know may hold any. So a mapping that is old, cut or missing names one
victim too many, and never one too few.
"""

from __future__ import annotations

from collections.abc import Mapping

from detectors.wire.contract import Finding, NodeHealth, SubjectKind
from recover.diagnose.starts import ranks
from recover.model import Gang, Node, World

__all__ = ["devices_by_pod", "harming"]


def devices_by_pod(health: NodeHealth) -> dict[str, frozenset[str]]:
    """Pod uid -> UUIDs of its devices, for each pod of which all are known."""
    held: dict[str, frozenset[str]] = {}
    for device in health.status.devices:
        for pod in device.pods:
            held[pod.uid] = held.get(pod.uid, frozenset()) | {device.uuid}
    return held


def harming(
    world: World,
    node: Node,
    gang: Gang,
    findings: list[Finding],
    held: Mapping[str, frozenset[str]],
    *,
    is_dead: bool,
) -> list[Finding]:
    """Those of the findings that harm this gang, which has ranks on the node.

    A pod without devices, a leader for example, suffers from none of theirs. Pods of the present attempt
    that have ended, or are gone, count with the living: the one that held the device may have gone first.
    What a dead gang held is not asked: it must start anew anyway, and off that node.
    """
    there = [pod for pod in ranks(world, gang) if pod.node == node.name and pod.accelerators]
    if not there or (all(pod.ended for pod in there) and not is_dead):
        return [finding for finding in findings if finding.subject.kind is not SubjectKind.DEVICE]
    return [
        finding
        for finding in findings
        if is_dead
        or finding.subject.kind is not SubjectKind.DEVICE
        or not finding.subject.device
        or any(pod.uid not in held or finding.subject.device in held[pod.uid] for pod in there)
    ]
