"""Reads from a pod's annotations which devices the pod uses, as written by the layer that shares the devices.
Pure.

The annotations are read only if the agent does not know the devices: these layers choose a GPU by themselves,
and the kubelet's ids say nothing. Anyone who may write a pod may write its annotations, so they count for
that pod alone: they can spare its own gang a restart, and never accuse a node or harm another gang.
Annotations that are incomplete, or name a device that the node does not have, say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from detectors.wire.contract import DEVICES_MAX, Device
from recover.model import Pod
from recover.model.ascend import chip_id

__all__ = ["told_devices"]

_HAMI = "hami.io/vgpu-devices-allocated"
_VOLCANO = "volcano.sh/"
_VOLCANO_IDS = f"{_VOLCANO}vgpu-ids-new"
_GPU_MANAGER = "tencent.com/"
_ASSIGNED = f"{_GPU_MANAGER}gpu-assigned"
_INDEX = f"{_GPU_MANAGER}predicate-gpu-idx-"
_ASCEND = "huawei.com/"
_REAL = f"{_ASCEND}AscendReal"
_RANK_TABLE = (
    "ascend.kubectl.kubernetes.io/ascend-910-configuration",
    "ascend.kubectl.kubernetes.io/ascend-npu-configuration",
)
_CHARS_MAX = 128 * DEVICES_MAX
"""Longest annotation that is read. HAMi writes about 70 characters for a device."""


class _RankDevice(msgspec.Struct):
    device_id: str


class _RankTable(msgspec.Struct):
    devices: list[_RankDevice] = []


def told_devices(pod: Pod, devices: Sequence[Device]) -> frozenset[str] | None:
    """Returns UUIDs among the node's `devices`, or the chips' ids (model/ascend.py) if the pod requests a
    resource of Ascend. Returns None if the annotations do not name all devices of the pod."""
    if any(resource.startswith(_ASCEND) for resource, _ in pod.requests):
        chips = list(_ascend(pod))
        known = frozenset(chip for chip in chips if chip is not None)
        return known if None not in chips and len(chips) >= max(1, pod.accelerators) else None
    if any(resource.startswith(_GPU_MANAGER) for resource, _ in pod.requests):
        by_minor = {str(device.minor): device.uuid for device in devices if device.minor is not None}
        found = [by_minor.get(number) for number in _gpu_manager(pod)]
    else:
        uuids = {device.uuid for device in devices}
        is_of_volcano = any(resource.startswith(_VOLCANO) for resource, _ in pod.requests)
        told = _hami(pod.annotations.get(_VOLCANO_IDS if is_of_volcano else _HAMI, ""))
        found = [uuid if uuid in uuids else None for uuid in told]
    named = frozenset(uuid for uuid in found if uuid is not None)
    is_whole = None not in found and len(found) >= max(1, pod.accelerators)
    return named if is_whole else None


def _hami(text: str) -> Iterator[str]:
    """Yields the UUIDs that HAMi and Volcano write: `<uuid>,<type>,<MiB>,<cores>:` for each device, and `;`
    between containers. Earlier versions of HAMi write `[<template>-<number>]` behind the UUID of a GPU that
    they divide by MIG.

    The scheduler writes the annotation, and the device plugin obeys it, unless HAMi's setting
    enablegetpreferredallocation is on and the kubelet chose otherwise; it is off by default. Source: HAMi,
    pkg/device/devices.go (EncodePodSingleDevice), pkg/device-plugin (Allocate), August 2026; Volcano,
    pkg/scheduler/api/devices/nvidia/vgpu/utils.go (encodePodDevices).
    """
    for container in _bounded(text).split(";"):
        for device in filter(None, container.split(":")):
            uuid, *fields = device.split(",")
            yield uuid.partition("[")[0] if len(fields) >= 3 else ""


def _gpu_manager(pod: Pod) -> Iterator[str]:
    """Yields the minor numbers of the device files. The pod has an annotation for each container, by the
    container's number, which lists the minor numbers separated by commas.

    Once GPU-Manager marks the pod as assigned, the annotation has the devices that the pod got; before that
    it has the devices that the scheduler wants. Source: tkestack/gpu-manager,
    pkg/services/allocator/nvidia/allocator.go (getReadyAnnotations), 2023.
    """
    if pod.annotations.get(_ASSIGNED) != "true":
        return
    told: Iterable[str] = (text for name, text in pod.annotations.items() if name.startswith(_INDEX))
    for text in told:
        yield from _bounded(text).split(",")


def _ascend(pod: Pod) -> Iterator[str | None]:
    """Yields the ids of the chips that the plugin has mounted, from the annotation in which the plugin lists
    them by their physical numbers, separated by commas; for a virtual chip, the id of the chip of which it is
    a part. If the plugin has not written this annotation, yields the chips of the pod's entry in the rank
    table. The annotation `huawei.com/Ascend910` has the chips that the scheduler wants, and is not read.

    Source: MindCluster, docs/en/scheduling/api/k8s.md, component/ascend-common/api/default_name.go, 2026.
    """
    if real := _bounded(pod.annotations.get(_REAL, "")):
        yield from (chip_id(name.strip()) for name in real.split(","))
        return
    text = next((found for name in _RANK_TABLE if (found := _bounded(pod.annotations.get(name, "")))), "")
    try:
        devices = msgspec.json.decode(text, type=_RankTable).devices if text else []
    except (msgspec.MsgspecError, RecursionError):
        devices = []
    for one in devices[:DEVICES_MAX]:
        yield chip_id(f"npu-{one.device_id}")


def _bounded(text: str) -> str:
    """Returns the text, or an empty string if the text is longer than any that was made for a node's
    devices."""
    return text if len(text) <= _CHARS_MAX else ""
