"""Which pods hold which devices, from what the kubelet says. Pure; core.py keeps one for its node.

A pod is placed at its devices only where every accelerator that it was given is one of the inventory. One
that stands at no device counts as holding each of them: a victim is never missed, at worst one too many is
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from detectors.wire.contract import DEVICE_PODS_MAX, Device, DevicePod

__all__ = ["Given", "HeldDevices", "Holders", "uids"]

_GONE_MAX = 16
_ACCELERATOR_WORDS = ("gpu", "mig-", "mps", "cuda")
_OLD_MIG = "MIG-GPU-"


class Given(msgspec.Struct, frozen=True):
    """What the kubelet gave one pod, as it says it: resource name -> ids of devices."""

    namespace: str
    name: str
    devices: dict[str, list[str]] = {}
    claims: bool = False
    """It has resource claims. Their devices have names that tell nothing here."""


class HeldDevices(msgspec.Struct, frozen=True):
    """The same, of a pod whose uid is known."""

    pod: DevicePod
    given: Given


def uids(folders: Iterable[tuple[str, str, str]], runs: Callable[[str], bool]) -> dict[tuple[str, str], str]:
    """(namespace, pod) -> uid, for each pod that is the only one of its name that runs.

    The kubelet tells names only; (namespace, pod, uid) come from the names of the log folders. A pod that was
    made anew under its name leaves its old folder for a while.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for namespace, name, uid in folders:
        if runs(uid):
            found.setdefault((namespace, name), []).append(uid)
    return {name: running[0] for name, running in found.items() if len(running) == 1}


class Holders:
    """Devices of pods by uid. A pod keeps its devices as long as it lives; the last that are gone are kept,
    since a pod may be deleted within the second in which its device breaks."""

    def __init__(self) -> None:
        self._held: dict[str, HeldDevices] = {}
        self._gone: dict[str, None] = {}
        self._parents: Mapping[str, str] = {}

    @property
    def uids(self) -> frozenset[str]:
        """Of the pods that were given devices, of any kind."""
        return frozenset(self._held)

    @property
    def there(self) -> frozenset[str]:
        """Of those that are still on the node."""
        return frozenset(self._held.keys() - self._gone.keys())

    def restore(self, devices: Iterable[Device]) -> None:
        """Goes on from what an earlier run of the agent published."""
        pods: dict[str, DevicePod] = {}
        ids: dict[str, list[str]] = {}
        for device in devices:
            for pod in device.pods:
                pods[pod.uid] = pod
                ids.setdefault(pod.uid, []).append(device.uuid)
        for uid, pod in pods.items():
            self._held[uid] = HeldDevices(pod, Given(pod.namespace, pod.name, {"": ids[uid]}))

    def parents(self, parents: Mapping[str, str]) -> None:
        """MIG device -> the GPU that it is a part of."""
        self._parents = parents

    def listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None:
        """The kubelet's answer. `there` are the uids of all pods that the node has a log folder of."""
        for held in pods:
            self._held[held.pod.uid] = held
        for uid in self._held:
            if uid in there:
                self._gone.pop(uid, None)
            else:
                self._gone.setdefault(uid)
        while len(self._gone) > _GONE_MAX:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._held[oldest]

    def placed(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """The devices with their pods."""
        pods: dict[str, list[DevicePod]] = {device.uuid: [] for device in devices}
        for held in sorted(self._held.values(), key=_order):
            mine = _devices(held.given, pods.keys(), self._parents)
            # Where there is no room at one of its devices, it must not stand at the others alone.
            if all(len(pods[uuid]) < DEVICE_PODS_MAX for uuid in mine):
                for uuid in mine:
                    pods[uuid].append(held.pod)
        return tuple(msgspec.structs.replace(device, pods=pods[device.uuid]) for device in devices)


def _order(held: HeldDevices) -> tuple[str, str, str]:
    return held.pod.namespace, held.pod.name, held.pod.uid


def _devices(given: Given, known: Iterable[str], parents: Mapping[str, str]) -> frozenset[str]:
    """The devices that the pod holds; none where they cannot all be told."""
    if given.claims:
        return frozenset()
    found = set()
    for resource, ids in given.devices.items():
        named = [_device(id_, known, parents) for id_ in ids]
        if all(named):
            found.update(named)
        elif any(named) or any(word in resource.lower() for word in _ACCELERATOR_WORDS):
            return frozenset()  # else it is no accelerator: a network card, /dev/fuse
    return frozenset(found)


def _device(id_: str, known: Iterable[str], parents: Mapping[str, str]) -> str:
    """The GPU that a device plugin's id means, or empty. Ids other than these say nothing sure: plugins that
    share GPUs by themselves (`GPU-<uuid>-3`, `tencent.com/vcuda-core-12`) choose the GPU later.

    `GPU-<uuid>`, shared in time `GPU-<uuid>::3`, `MIG-<uuid>`, before R470 `MIG-GPU-<uuid>/gi/ci`.
    Source: NVIDIA k8s-device-plugin.
    """
    id_ = id_.partition("::")[0]
    parent = id_.removeprefix("MIG-").partition("/")[0] if id_.startswith(_OLD_MIG) else parents.get(id_, id_)
    return parent if parent in known else ""
