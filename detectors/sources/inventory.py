"""The node's GPUs: from NVML in a child process that may be lost, else from /proc/driver/nvidia.

A driver call can hang for good after a GSP timeout, and a process stuck in it is immune to SIGKILL. So no
driver call is made in the agent, and the child's silence is told, not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import msgspec

from detectors.contract import Device
from detectors.facts import parse_pci
from detectors.sources.nvml_child import ChildReply

__all__ = ["Inventory", "InventoryError", "from_nvml", "from_proc"]

_OUTPUT_BYTES_MAX = 256 * 1024
_REAP_S = 1.0


class InventoryError(Exception):
    """NVML gave no inventory. The message says why."""


class Inventory(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...] = ()
    driver_version: str = ""
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


async def from_nvml(deadline_s: float) -> Inventory:
    """Raises `InventoryError`: no library, no driver, or no answer within the deadline."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "detectors.sources.nvml_child",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_OUTPUT_BYTES_MAX,
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(), deadline_s)
    except TimeoutError:
        raise InventoryError(f"NVML gave no answer within {deadline_s:g} s: the driver may hang") from None
    finally:
        await _end(child)
    try:
        reply = msgspec.json.decode(output, type=ChildReply)
    except msgspec.MsgspecError as error:
        raise InventoryError(f"the NVML child ended with status {child.returncode}: {error}") from error
    if reply.error:
        raise InventoryError(reply.error)
    return Inventory(
        devices=reply.devices,
        driver_version=reply.driver_version,
        free_device_bytes=reply.free_device_bytes,
    )


async def _end(child: asyncio.subprocess.Process) -> None:
    """Kills the child by its id. One stuck in the driver outlives that; it is left to the kernel."""
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), _REAP_S)


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
    return Device(uuid=uuid[:64], pci=f"{pci}.0", model=fields.get("Model", "")[:64], index=index)


def _driver_version(path: Path) -> str:
    """The first word like a version: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.45.04  Tue ...`."""
    with contextlib.suppress(OSError):
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        for word in first.split():
            if word[:1].isdigit() and "." in word:
                return word[:32]
    return ""
