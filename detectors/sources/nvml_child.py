"""Asks NVML for the inventory and the free memory, prints them as JSON and ends. inventory.py runs it as a
process of its own."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import msgspec

from detectors.commands.extras import install
from detectors.text.pci import parse_pci
from detectors.wire.contract import Device, NodeHealthStatus
from detectors.wire.fitting import fit, fitted

__all__ = ["ChildReply", "ask", "main"]


class ChildReply(msgspec.Struct, frozen=True):
    """What is printed."""

    error: str = ""
    driver_version: str = ""
    devices: tuple[Device, ...] = ()
    parents: dict[str, str] = {}
    """MIG device -> the GPU that it is a part of."""
    free_device_bytes: int | None = None
    """The least of all devices that tell it. A MIG parent refuses the call."""


def main() -> int:
    sys.stdout.buffer.write(msgspec.json.encode(ask()))
    return 0


def ask() -> ChildReply:
    """In this process: a driver call may never return. Never raises for what NVML says."""
    try:
        import pynvml  # noqa: PLC0415  only here: the package is optional
    except ImportError as error:
        return ChildReply(error=f"nvidia-ml-py is not installed: {error}; {install('agent')} brings it")
    try:
        pynvml.nvmlInit()
        driver_version = fit(NodeHealthStatus, "driver_version", _text(pynvml.nvmlSystemGetDriverVersion()))
        devices, free_bytes = [], []
        parents: dict[str, str] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                address = parse_pci(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
                uuid = fit(Device, "uuid", _text(pynvml.nvmlDeviceGetUUID(handle)))
                model = _text(pynvml.nvmlDeviceGetName(handle))
            except pynvml.NVMLError:
                continue  # a lost device does not hide the others
            devices.append(
                fitted(Device, uuid=uuid, pci=f"{address}.0" if address else "", model=model, index=index)
            )
            parents |= dict.fromkeys(_mig_devices(pynvml, handle), uuid)
            with contextlib.suppress(pynvml.NVMLError):
                free_bytes.append(_free_bytes(pynvml, handle))
    except pynvml.NVMLError as error:
        return ChildReply(error=f"NVML: {error}")
    return ChildReply(
        driver_version=driver_version,
        devices=tuple(devices),
        parents=parents,
        free_device_bytes=min(free_bytes, default=None),
    )


def _mig_devices(pynvml: Any, handle: Any) -> list[str]:
    """UUIDs of the GPU's MIG devices; none where it is not partitioned."""
    found = []
    try:
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(pynvml.NVMLError):  # a place without a device
                mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                found.append(_text(pynvml.nvmlDeviceGetUUID(mig)))
    except pynvml.NVMLError:
        return []
    return found


def _free_bytes(pynvml: Any, handle: Any) -> int:
    """Version 2 where library and driver have it: it tells the driver's own share apart. Raises NVMLError."""
    version = getattr(pynvml, "nvmlMemory_v2", None)
    if version is not None:
        with contextlib.suppress(pynvml.NVMLError):
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version).free)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
