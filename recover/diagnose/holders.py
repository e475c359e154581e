"""Decides which of a node's findings affect a gang: the findings that are about no single device, and the
findings of devices that the gang's pods use, or may use. Pure.

A pod whose devices the agent does not know may use any device. A mapping that is old, cut or missing
therefore names too many affected gangs, and never too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from detectors.text.pci import parse_pci
from detectors.wire.contract import Device, Finding, NodeHealth, SubjectKind
from detectors.wire.instance_pods import instances_of
from recover.diagnose.told_devices import told_devices
from recover.model import Pod
from recover.policy.settings import Timing

__all__ = ["Holders", "affecting", "held_by", "holders_on"]


_OF_DEVICES = (SubjectKind.DEVICE, SubjectKind.SWITCH)
"""Subjects whose faults harm only pods with devices. Any device of the node may use a switch."""


class Holders(msgspec.Struct, frozen=True):
    """The pods of one node that use devices of the node, with these devices."""

    devices: list[Device]
    by_pod: Mapping[str, Mapping[str, frozenset[int]]]
    """Map from the uid of a pod to the UUIDs of its devices, and from each UUID to MIG GPU instances; no
    instance stands for the whole device. Only pods are included for which the agent knows all devices."""


def holders_on(health: NodeHealth) -> Holders:
    held: dict[str, dict[str, frozenset[int]]] = {}
    for device in health.status.devices:
        instances = instances_of(device)
        for pod in device.pods:
            held.setdefault(pod.uid, {})[device.uuid] = instances.get(pod.uid, frozenset())
    return Holders(health.status.devices, held)


def affecting(
    ranks_there: Iterable[Pod], findings: list[Finding], holders: Holders, timing: Timing, *, is_dead: bool
) -> list[Finding]:
    """Returns those findings of a node that affect the gang with these ranks on the node.

    A pod without devices, for example a leader, suffers from no fault of a device or of a switch between
    devices. Pods of the present attempt that have ended, or no longer exist, count with the living pods: the
    pod that used the device may have ended first. A pod that ended longer than `timing.blame_window_s` before
    the fault does not count: its device was free since then. For a dead gang the devices do not matter: the
    gang must start again anyway, and on other nodes.
    """
    there = [pod for pod in ranks_there if pod.may_hold_devices]
    if not there or (all(pod.ended for pod in there) and not is_dead):
        return [finding for finding in findings if finding.subject.kind not in _OF_DEVICES]
    held = [(pod, held_by(pod, holders)) for pod in there]
    window = timedelta(seconds=timing.blame_window_s)
    return [
        finding
        for finding in findings
        if is_dead
        or finding.subject.kind is not SubjectKind.DEVICE
        or any(
            _may_suffer(mine, finding, holders)
            for pod, mine in held
            if not pod.had_ended(finding.first_seen - window)
        )
    ]


def held_by(pod: Pod, holders: Holders) -> Mapping[str, frozenset[int]] | None:
    """Returns the pod's devices, as in `Holders.by_pod`, or None if nobody knows all of them."""
    known = holders.by_pod.get(pod.uid)
    if known is not None:
        return known
    told = told_devices(pod, holders.devices)
    return None if told is None else dict.fromkeys(told, frozenset())


def _may_suffer(held: Mapping[str, frozenset[int]] | None, finding: Finding, holders: Holders) -> bool:
    """Whether the pod with these devices uses, or may use, the broken device."""
    device, instance = finding.subject.device, finding.subject.gpu_instance
    if not device:
        return held is None or not _are_elsewhere(held, finding, holders)
    if held is None or device not in held:
        return held is None
    is_whole = not finding.confined or instance is None or not held[device]
    return is_whole or instance in held[device]


def _are_elsewhere(held: Iterable[str], finding: Finding, holders: Holders) -> bool:
    """Whether all these devices have another place on the bus than the broken device, whose UUID nobody
    knows: a GPU that fails while its driver starts never shows one."""
    broken = parse_pci(finding.subject.pci)
    places = {device.uuid: parse_pci(device.pci) for device in holders.devices}
    return broken is not None and all(places.get(uuid) not in (None, broken) for uuid in held)
