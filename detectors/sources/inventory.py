"""Builds the list of the node's GPUs: from a sample of NVML (nvml.py), from /proc/driver/nvidia, and from the
PCI bus."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from detectors.folds.gpu_states import BusGpus
from detectors.folds.holders import MigDevice
from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import Device, NodeHealthStatus
from detectors.wire.fitting import fit, fitted
from detectors.wire.gpu_sample import Sample

__all__ = ["Inventory", "addresses", "bus_gpus", "bus_of", "from_proc", "of_sample"]

_ALL = "all"


class Inventory(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...] = ()
    driver_version: str = ""
    mig_devices: dict[str, MigDevice] | None = None
    """MIG devices by UUID; None if not known, since only NVML reports them."""
    free_device_bytes: int | None = None
    """Free memory of the device that has the least; None if not known, since only NVML reports it."""


def from_proc(host_root: Path) -> Inventory:
    """Returns what the driver shows under /proc. The result is empty without a driver; a folder that cannot
    be read is left out."""
    root = host_root / "proc/driver/nvidia"
    devices = []
    with contextlib.suppress(OSError):
        for folder in sorted((root / "gpus").iterdir()):
            device = _device_of(folder)
            if device is not None:
                devices.append(device)
    return Inventory(devices=tuple(devices), driver_version=_driver_version(root / "version"))


def addresses(host_root: Path) -> frozenset[PciAddress]:
    """Returns all places on the node's bus that the kernel or the GPU driver shows, including a GPU without a
    UUID and a GPU that the driver never recognised. The result is empty if neither shows any."""
    found = set()
    for folder in ("sys/bus/pci/devices", "proc/driver/nvidia/gpus"):
        with contextlib.suppress(OSError):
            found |= {parse_pci(entry.name) for entry in (host_root / folder).iterdir()}
    return frozenset(pci for pci in found if pci is not None)


def of_sample(sample: Sample) -> Inventory:
    """Returns the GPUs of a sample that have a UUID and an address."""
    told = [gpu for gpu in sample.gpus if gpu.uuid and gpu.pci]
    return Inventory(
        devices=tuple(
            fitted(Device, uuid=gpu.uuid, pci=gpu.pci, model=gpu.model, index=gpu.index, minor=gpu.minor)
            for gpu in told
        ),
        driver_version=sample.driver_version,
        mig_devices={
            uuid: MigDevice(gpu.uuid, instance) for gpu in told for uuid, instance in gpu.mig_devices.items()
        },
        free_device_bytes=min((gpu.free_bytes for gpu in told if gpu.free_bytes is not None), default=None),
    )


def bus_of(sample: Sample, host_root: Path) -> BusGpus:
    """Returns the GPUs on the bus that the sample should show. Returns none if this container was not given
    all GPUs, or if the sample is from another vendor's library, for example on a node whose display adapter
    is NVIDIA's."""
    sees_all = os.environ.get("NVIDIA_VISIBLE_DEVICES", _ALL) == _ALL
    return bus_gpus(host_root) if sees_all and not sample.is_by_ixml else BusGpus()


def bus_gpus(host_root: Path) -> BusGpus:
    """Returns NVIDIA's GPUs on the PCI bus. Virtual functions are left out: a GPU that virtual machines share
    has dozens, and NVML shows none of them on the host. Entries that cannot be read are left out."""
    ours: set[PciAddress] = set()
    others: set[PciAddress] = set()
    with contextlib.suppress(OSError):
        for folder in (host_root / "sys/bus/pci/devices").iterdir():
            pci = parse_pci(folder.name)
            if pci is None or not _is_gpu(folder) or (folder / "physfn").is_symlink():
                continue
            driver = _link(folder / "driver")
            (ours if driver in ("", "nvidia") else others).add(pci)
    return BusGpus(frozenset(ours), frozenset(others))


def _is_gpu(folder: Path) -> bool:
    """Whether the device is NVIDIA's, and is a display controller by the first byte of its class."""
    return _text(folder / "vendor") == "0x10de" and _text(folder / "class").startswith("0x03")


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()
    return ""


def _link(path: Path) -> str:
    """Returns the last part of the link's target; empty if there is no link."""
    with contextlib.suppress(OSError):
        return path.readlink().name
    return ""


def _device_of(folder: Path) -> Device | None:
    pci = parse_pci(folder.name)
    if pci is None:
        return None
    fields = {}
    with contextlib.suppress(OSError):
        for line in (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields[name.strip()] = value.strip()
    uuid = fields.get("GPU UUID", "")
    if not uuid.startswith("GPU-") or "?" in uuid:  # the driver prints question marks until it knows the UUID
        return None
    minor = fields.get("Device Minor", "")
    index = int(minor) if minor.isdigit() else None
    return fitted(Device, uuid=uuid, pci=f"{pci}.0", model=fields.get("Model", ""), index=index, minor=index)


def _driver_version(path: Path) -> str:
    """Returns the first word that looks like a version: `NVRM version: NVIDIA UNIX x86_64 Kernel Module
    595.45.04  Tue ...`."""
    with contextlib.suppress(OSError):
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        for word in first.split():
            if word[:1].isdigit() and "." in word:
                return fit(NodeHealthStatus, "driver_version", word)
    return ""
