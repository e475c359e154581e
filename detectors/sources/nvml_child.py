"""Asks NVML for the inventory, prints it as JSON and ends. Run by inventory.py as a process of its own."""

from __future__ import annotations

import sys

import msgspec

from detectors.contract import Device
from detectors.facts import parse_pci

__all__ = ["ChildReply", "main"]


class ChildReply(msgspec.Struct, frozen=True):
    """What is printed."""

    error: str = ""
    driver_version: str = ""
    devices: tuple[Device, ...] = ()


def main() -> int:
    sys.stdout.buffer.write(msgspec.json.encode(_ask()))
    return 0


def _ask() -> ChildReply:
    try:
        import pynvml  # noqa: PLC0415  only here: the package is optional
    except ImportError as error:
        return ChildReply(error=f"nvidia-ml-py is not installed: {error}")
    try:
        pynvml.nvmlInit()
        driver_version = _text(pynvml.nvmlSystemGetDriverVersion())
        devices = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                address = parse_pci(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
                uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
                model = _text(pynvml.nvmlDeviceGetName(handle))
            except pynvml.NVMLError:
                continue  # a lost device does not hide the others
            devices.append(
                Device(uuid=uuid, pci=f"{address}.0" if address else "", model=model[:64], index=index)
            )
    except pynvml.NVMLError as error:
        return ChildReply(error=f"NVML: {error}")
    return ChildReply(driver_version=driver_version, devices=tuple(devices))


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
