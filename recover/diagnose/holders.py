"""Which of a node's findings affect a gang: those of devices that its pods hold, or may hold. Pure.

A pod whose devices the agent does not know may hold any. So a mapping that is old, cut or missing names one
victim too many, and never one too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from detectors.wire.contract import Device, Finding, NodeHealth, SubjectKind
from detectors.wire.instance_pods import instances_of
from recover.diagnose.told_devices import told_devices
from recover.model import Pod

__all__ = ["Holders", "affecting", "held_by", "holders_on"]


class Holders(msgspec.Struct, frozen=True):
    """Which pods of one node hold which of its devices."""

    devices: list[Device]
    by_pod: Mapping[str, Mapping[str, frozenset[int]]]
    """Pod uid -> UUID of a device -> MIG GPU instances, none for the whole device. Only pods of which the
    agent knows all devices."""


def holders_on(health: NodeHealth) -> Holders:
    held: dict[str, dict[str, frozenset[int]]] = {}
    for device in health.status.devices:
        instances = instances_of(device)
        for pod in device.pods:
            held.setdefault(pod.uid, {})[device.uuid] = instances.get(pod.uid, frozenset())
    return Holders(health.status.devices, held)


def affecting(
    ranks_there: Iterable[Pod], findings: list[Finding], holders: Holders, *, is_dead: bool
) -> list[Finding]:
    """Those of the findings of a node that affect the gang that has these ranks there.

    A pod without devices, a leader for example, suffers from none of theirs. Pods of the present attempt
    that have ended, or are gone, count with the living: the one that held the device may have gone first.
    What a dead gang held is not asked: it must start anew anyway, and off that node.
    """
    there = [pod for pod in ranks_there if pod.may_hold_devices]
    if not there or (all(pod.ended for pod in there) and not is_dead):
        return [finding for finding in findings if finding.subject.kind is not SubjectKind.DEVICE]
    held = [held_by(pod, holders) for pod in there]
    return [
        finding
        for finding in findings
        if is_dead
        or finding.subject.kind is not SubjectKind.DEVICE
        or not finding.subject.device
        or any(_may_suffer(mine, finding) for mine in held)
    ]


def held_by(pod: Pod, holders: Holders) -> Mapping[str, frozenset[int]] | None:
    """Its devices, as in `Holders.by_pod`; None where nobody knows them all."""
    known = holders.by_pod.get(pod.uid)
    if known is not None:
        return known
    told = told_devices(pod, holders.devices)
    return None if told is None else dict.fromkeys(told, frozenset())


def _may_suffer(held: Mapping[str, frozenset[int]] | None, finding: Finding) -> bool:
    """Whether the holder of these has what is broken, or may have it."""
    device, instance = finding.subject.device, finding.subject.gpu_instance
    if held is None or device not in held:
        return held is None
    is_whole = not finding.confined or instance is None or not held[device]
    return is_whole or instance in held[device]
