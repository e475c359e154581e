"""Knows which pods have which devices, from the reports of the kubelet. Pure; core.py keeps one for its node.

A pod is placed at its devices only if every accelerator that it was given is in the inventory. A pod that is
placed at no device counts as having each of them: no affected pod is missed, and at worst one too many is
counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from detectors.wire.contract import DEVICE_PODS_MAX, INSTANCE_PODS_MAX, Device, DevicePod
from detectors.wire.instance_pods import instances_of

__all__ = ["Claimed", "Given", "HeldDevices", "Holders", "MigDevice", "Share", "Sharing", "uids"]

_GONE_MAX = 16
_ACCELERATOR_WORDS = ("gpu", "mig-", "mps", "cuda")
_MIG, _OLD_MIG = "MIG-", "MIG-GPU-"
_DRA_DRIVER = "gpu.nvidia.com"
_DRIVERS_WITHOUT_GPUS = frozenset({"compute-domain.nvidia.com"})
"""NVIDIA's driver for channels of multi-node NVLink. Any other driver may have given the pod any GPU."""
_DEVICE_FILE = re.compile(r"nvidia(?P<minor>[0-9]{1,4})(?:/gi(?P<instance>[0-9]{1,4}))?(?:/vgpu[0-9]+)?")
_DRA_DEVICE = re.compile(r"gpu-(?P<minor>[0-9]{1,4})(?:-mig-.+)?")


class Claimed(msgspec.Struct, frozen=True):
    """A device of a resource claim (DRA), as the kubelet names it. The driver gives the device its name."""

    driver: str = ""
    """Name of the driver; empty if the kubelet does not name it. The device may then be any."""
    device: str = ""


class Given(msgspec.Struct, frozen=True):
    """Devices that the kubelet reports for one pod: resource name -> ids of devices."""

    namespace: str
    name: str
    devices: dict[str, list[str]] = {}
    claims: tuple[Claimed, ...] = ()


class MigDevice(msgspec.Struct, frozen=True):
    """The place of a MIG device, or of a whole GPU."""

    gpu: str
    """UUID of the GPU, or of the GPU to which the MIG device belongs."""
    instance: int | None = None
    """Id of the GPU instance; None for the whole GPU, and if the id is not known."""


class HeldDevices(msgspec.Struct, frozen=True):
    """Devices that the kubelet gave to a pod whose uid is known."""

    pod: DevicePod
    given: Given


class Sharing(StrEnum):
    """The way in which a pod has a GPU."""

    WHOLE = "whole"
    MIG = "mig"
    SHARED = "shared"
    """The pod shares the GPU with other pods."""
    UNPLACED = "unplaced"
    """The pod has GPUs, and the agent does not know which."""


class Share(msgspec.Struct, frozen=True):
    """A GPU, or one of its GPU instances, that a present pod has."""

    pod: DevicePod
    uuid: str
    """UUID of the GPU; empty for a pod that is not placed."""
    instance: int | None
    sharing: Sharing


def uids(folders: Iterable[tuple[str, str, str]], runs: Callable[[str], bool]) -> dict[tuple[str, str], str]:
    """Returns (namespace, pod) -> uid, for each pod that is the only running one of its name.

    The kubelet reports only names; (namespace, pod, uid) come from the names of the log folders. A pod that
    was created again under its name leaves its old folder for a while.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for namespace, name, uid in folders:
        if runs(uid):
            found.setdefault((namespace, name), []).append(uid)
    return {name: running[0] for name, running in found.items() if len(running) == 1}


class Holders:
    """Keeps the devices of pods by uid. A pod keeps its devices as long as it lives. The last pods that are
    gone are remembered, since a pod may be deleted within the second in which its device breaks."""

    def __init__(self) -> None:
        self._held: dict[str, HeldDevices] = {}
        self._restored: dict[str, Given] = {}
        """Devices by pod uid, as an earlier run published them. They count while the kubelet's ids of the pod
        cannot be identified, as those of MIG devices until NVML answers: never, if the driver hangs."""
        self._gone: dict[str, None] = {}
        self._listed: frozenset[str] = frozenset()
        """Uids in the kubelet's last answer. A pod that has ended keeps its log folder, but no device."""
        self._mig_devices: Mapping[str, MigDevice] = {}

    @property
    def uids_with_gone(self) -> frozenset[str]:
        """Uids of the pods that were given devices of any kind."""
        return frozenset(self._held)

    @property
    def there(self) -> frozenset[str]:
        """Uids of the pods with devices that are still on the node."""
        return frozenset(self._held.keys() - self._gone.keys())

    def restore(self, devices: Iterable[Device]) -> None:
        """Continues from what an earlier run of the agent published."""
        pods: dict[str, DevicePod] = {}
        ids: dict[str, list[str]] = {}
        for device in devices:
            instances = instances_of(device)
            for pod in device.pods:
                pods[pod.uid] = pod
                parts = [f"MIG-{device.uuid}/{instance}/0" for instance in instances.get(pod.uid, ())]
                ids.setdefault(pod.uid, []).extend(parts or [device.uuid])
        for uid, pod in pods.items():
            self._restored[uid] = given = Given(pod.namespace, pod.name, {"": ids[uid]})
            self._held[uid] = HeldDevices(pod, given)

    def mig_devices(self, mig_devices: Mapping[str, MigDevice]) -> None:
        """Takes the place of each MIG device, by UUID. A GPU for which no MIG device is shown any more keeps
        those that were shown last: NVML shows none of a lost GPU, whose pods still have them."""
        shown = {place.gpu for place in mig_devices.values()}
        kept = {uuid: place for uuid, place in self._mig_devices.items() if place.gpu not in shown}
        self._mig_devices = {**kept, **mig_devices}

    def listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None:
        """Takes the kubelet's answer. `there` are the uids of all pods that have a log folder on the node."""
        listed = {held.pod.uid: held for held in pods}
        self._listed = frozenset(listed)
        self._held |= listed
        for uid in self._held:
            if uid in there:
                self._gone.pop(uid, None)
            else:
                self._gone.setdefault(uid)
        while len(self._gone) > _GONE_MAX:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._held[oldest]
            self._restored.pop(oldest, None)

    def sole(self, devices: tuple[Device, ...], uuid: str, instance: int | None) -> DevicePod | None:
        """Returns the only pod that has the device, or that GPU instance of the device. Returns None if not
        exactly one pod has it, or if a pod may have any device."""
        found = [
            share
            for share in self.shares(devices)
            if share.sharing is Sharing.UNPLACED
            or (share.uuid == uuid and (instance is None or share.instance in (None, instance)))
        ]
        is_sole = len(found) == 1 and found[0].sharing is not Sharing.UNPLACED
        return found[0].pod if is_sole else None

    def shares(self, devices: tuple[Device, ...]) -> list[Share]:
        """Returns what the pods have, by the kubelet's last answer."""
        listed = self._listed & self.there
        held = sorted((self._held[uid] for uid in listed), key=_order)
        parts: list[tuple[DevicePod, str, int | None]] = []
        unplaced: list[Share] = []
        for one, mine in self._identified(held, devices):
            if not mine and _has_accelerators(one.given):
                unplaced.append(Share(one.pod, "", None, Sharing.UNPLACED))
            for uuid, instances in mine.items():
                parts += [(one.pod, uuid, instance) for instance in instances or (None,)]
        pods = Counter((uuid, instance) for _, uuid, instance in parts)
        gpus = Counter(uuid for _, uuid, _ in parts)
        return [*(_share(part, pods, gpus, is_sure=not unplaced) for part in parts), *unplaced]

    def are_shared(self, devices: tuple[Device, ...]) -> bool:
        """Whether pods of the kubelet's last answer share a device."""
        there = (held for uid, held in self._held.items() if uid in self._listed)
        pods = Counter(uuid for _, mine in self._identified(there, devices) for uuid in mine)
        return any(count > 1 for count in pods.values())

    def placed(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Returns the devices with their pods."""
        pods: dict[str, list[DevicePod]] = {device.uuid: [] for device in devices}
        parts: dict[str, list[str]] = {device.uuid: [] for device in devices}
        for held, mine in self._identified(sorted(self._held.values(), key=_order), devices):
            # If one of its devices has no room for the pod, the pod must not be listed at the others alone.
            if all(len(pods[uuid]) < DEVICE_PODS_MAX for uuid in mine):
                for uuid, instances in mine.items():
                    pods[uuid].append(held.pod)
                    told = [f"{instance}/{held.pod.uid}" for instance in instances]
                    parts[uuid] += told if len(parts[uuid]) + len(told) <= INSTANCE_PODS_MAX else []
        return tuple(
            msgspec.structs.replace(device, pods=pods[device.uuid], instance_pods=parts[device.uuid])
            for device in devices
        )

    def lacks_mig_devices(self, devices: tuple[Device, ...]) -> bool:
        """Whether a pod cannot be placed, and has a MIG device."""
        unplaced = (held.given for held, mine in self._identified(self._held.values(), devices) if not mine)
        return any(
            id_.startswith(_MIG) for given in unplaced for ids in given.devices.values() for id_ in ids
        )

    def _identified(
        self, pods: Iterable[HeldDevices], devices: tuple[Device, ...]
    ) -> Iterator[tuple[HeldDevices, dict[str, list[int]]]]:
        """Yields each pod with its devices, as `_devices` returns them."""
        known = _Known(frozenset(one.uuid for one in devices), _by_minor(devices), self._mig_devices)
        for held in pods:
            before = self._restored.get(held.pod.uid, held.given)
            yield held, _devices(held.given, known) or _devices(before, known)


class _Known(msgspec.Struct, frozen=True):
    gpus: frozenset[str]
    by_minor: Mapping[int, str]
    mig_devices: Mapping[str, MigDevice]


def _order(held: HeldDevices) -> tuple[str, str, str]:
    return held.pod.namespace, held.pod.name, held.pod.uid


def _by_minor(devices: Iterable[Device]) -> dict[int, str]:
    """Returns number -> UUID for GPUs that are named by a number, such as `gpu-N` in a resource slice. N is
    the minor number of the device file; earlier versions of NVIDIA's DRA driver took NVML's number, so a
    number that could name several GPUs is left out."""
    found: dict[int, list[str]] = {}
    for device in devices:
        for number in {one for one in (device.minor, device.index) if one is not None}:
            found.setdefault(number, []).append(device.uuid)
    sure = {device.uuid for device in devices if device.minor is not None}
    return {number: uuids[0] for number, uuids in found.items() if len(uuids) == 1 and uuids[0] in sure}


def _devices(given: Given, known: _Known) -> dict[str, list[int]]:
    """Returns the devices that the pod has, each with its GPU instances; an empty list is the whole device.
    Returns no device if not all of them can be identified."""
    places: list[MigDevice] = []
    for resource, ids in given.devices.items():
        named = [place for id_ in ids if (place := _place(id_, known)) is not None]
        if len(named) == len(ids):
            places += named
        elif named or any(word in resource.lower() for word in _ACCELERATOR_WORDS):
            return {}  # otherwise the resource is no accelerator: a network card, /dev/fuse
    for claimed in given.claims:
        if claimed.driver in _DRIVERS_WITHOUT_GPUS:
            continue
        claimed_gpu = _claimed_gpu(claimed, known)
        if not claimed_gpu:
            return {}
        places.append(MigDevice(claimed_gpu))
    found: dict[str, set[int | None]] = {}
    for place in places:
        found.setdefault(place.gpu, set()).add(place.instance)
    return {gpu: _instances(instances) for gpu, instances in found.items()}


def _share(
    part: tuple[DevicePod, str, int | None],
    pods: Mapping[tuple[str, int | None], int],
    gpus: Mapping[str, int],
    *,
    is_sure: bool,
) -> Share:
    """Returns the share of one pod. `is_sure`: no other pod may have the GPU. A pod that has the whole GPU
    shares it with the pods of its instances."""
    pod, uuid, instance = part
    if instance is None:
        sharing = Sharing.WHOLE if is_sure and gpus[uuid] == 1 else Sharing.SHARED
    else:
        is_alone = is_sure and pods[uuid, instance] == 1 and not pods.get((uuid, None))
        sharing = Sharing.MIG if is_alone else Sharing.SHARED
    return Share(pod, uuid, instance, sharing)


def _has_accelerators(given: Given) -> bool:
    """Whether the pod was given an accelerator that could not be placed."""
    is_claimed = any(claimed.driver not in _DRIVERS_WITHOUT_GPUS for claimed in given.claims)
    return is_claimed or any(word in name.lower() for name in given.devices for word in _ACCELERATOR_WORDS)


def _instances(instances: set[int | None]) -> list[int]:
    told = sorted(instance for instance in instances if instance is not None)
    return told if len(told) == len(instances) else []


def _place(id_: str, known: _Known) -> MigDevice | None:
    """Returns the GPU, or the part of a GPU, that an id of a device plugin names; None for any other id.
    Plugins that share GPUs by themselves (`GPU-<uuid>-3`, `tencent.com/vcuda-core-12`) choose the GPU later,
    so their ids prove nothing.

    Known ids are `GPU-<uuid>`; shared in time or by MPS `GPU-<uuid>::3`; `MIG-<uuid>`; before R470
    `MIG-GPU-<uuid>/gi/ci`; on GKE the device file `nvidia0` or `nvidia0/gi5`, and for sharing each with a
    suffix such as `/vgpu3`.
    Source: NVIDIA k8s-device-plugin; GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia
    (mig.go, gpusharing.go); HAMi, pkg/device-plugin (Allocate); all in their versions of summer 2026.
    """
    file = _DEVICE_FILE.fullmatch(id_)
    if file is not None:
        gpu = known.by_minor.get(int(file["minor"]))
        instance = int(file["instance"]) if file["instance"] else None
        return MigDevice(gpu, instance) if gpu is not None else None
    id_ = id_.partition("::")[0]
    if id_.startswith(_OLD_MIG):
        gpu, _, parts = id_.removeprefix("MIG-").partition("/")
        digits = parts.partition("/")[0]
        place = MigDevice(gpu, int(digits) if digits.isascii() and digits.isdigit() else None)
    else:
        place = known.mig_devices.get(id_) or MigDevice(id_)
    return place if place.gpu in known.gpus else None


def _claimed_gpu(claimed: Claimed, known: _Known) -> str:
    """Returns the UUID of the GPU that NVIDIA's DRA driver names, or on which the driver has created a MIG
    device; empty if it cannot be identified. The name of a MIG device does not contain its instance ids.

    The names are `gpu-<minor>` and `gpu-<minor>-mig-<profile>-<profile id>-<placement>`.
    Source: NVIDIA k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go (May 2026).
    """
    named = _DRA_DEVICE.fullmatch(claimed.device) if claimed.driver == _DRA_DRIVER else None
    return known.by_minor.get(int(named["minor"]), "") if named is not None else ""
