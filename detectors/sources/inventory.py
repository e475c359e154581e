"""The node's GPUs: from NVML in a child process that may be lost, else from /proc/driver/nvidia.

A driver call can hang for good after a GSP timeout, and a process stuck in it is immune to SIGKILL. So no
driver call is made in the agent, and the child's silence is told, not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

from detectors.sources.child import printed_by
from detectors.sources.nvml_child import ChildReply
from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import Device, NodeHealthStatus
from detectors.wire.fitting import fit, fitted

__all__ = ["Inventory", "InventoryError", "addresses", "from_nvml", "from_proc"]


class InventoryError(Exception):
    """NVML gave no inventory. The message says why."""


class Inventory(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...] = ()
    driver_version: str = ""
    parents: dict[str, str] | None = None
    """MIG device -> its GPU; only NVML tells it."""
    free_device_bytes: int | None = None
    """Of the device that has least; only NVML tells it."""


def from_proc(host_root: Path) -> Inventory:
    """What the driver shows under /proc. Empty without a driver; a folder that cannot be read is left out."""
    root = host_root / "proc/driver/nvidia"
    devices = []
    with contextlib.suppress(OSError):
        for folder in sorted((root / "gpus").iterdir()):
            device = _device_of(folder)
            if device is not None:
                devices.append(device)
    return Inventory(devices=tuple(devices), driver_version=_driver_version(root / "version"))


def addresses(host_root: Path) -> frozenset[PciAddress]:
    """All places on the node's bus, by the kernel and by the GPU driver: also of a GPU without a UUID, and of
    one that the driver never came to know. Empty where neither shows any."""
    found = set()
    for folder in ("sys/bus/pci/devices", "proc/driver/nvidia/gpus"):
        with contextlib.suppress(OSError):
            found |= {parse_pci(entry.name) for entry in (host_root / folder).iterdir()}
    return frozenset(pci for pci in found if pci is not None)


async def from_nvml(
    deadline_s: float, *, outlived: list[asyncio.subprocess.Process] | None = None
) -> Inventory:
    """Raises `InventoryError`: no library, no driver, or no answer within the deadline.

    A child that could not be ended is put into `outlived`.
    """
    try:
        output, status = await printed_by(
            "detectors.sources.nvml_child", deadline_s=deadline_s, outlived=outlived
        )
    except TimeoutError:
        raise InventoryError(f"NVML gave no answer within {deadline_s:g} s: the driver may hang") from None
    try:
        reply = msgspec.json.decode(output, type=ChildReply)
    except msgspec.MsgspecError as error:
        raise InventoryError(f"the NVML child ended with status {status}: {error}") from error
    if reply.error:
        raise InventoryError(reply.error)
    return Inventory(
        devices=reply.devices,
        driver_version=reply.driver_version,
        parents=reply.parents,
        free_device_bytes=reply.free_device_bytes,
    )


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
    if not uuid.startswith("GPU-") or "?" in uuid:  # the driver prints question marks until it knows
        return None
    minor = fields.get("Device Minor", "")
    index = int(minor) if minor.isdigit() else None
    return fitted(Device, uuid=uuid, pci=f"{pci}.0", model=fields.get("Model", ""), index=index)


def _driver_version(path: Path) -> str:
    """The first word like a version: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.45.04  Tue ...`."""
    with contextlib.suppress(OSError):
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        for word in first.split():
            if word[:1].isdigit() and "." in word:
                return fit(NodeHealthStatus, "driver_version", word)
    return ""
