"""The part of /sys that shows the devices on the PCI bus, as a folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BRIDGE", "COMPUTE", "DISPLAY", "MELLANOX", "NETWORK", "NVIDIA", "device"]

NVIDIA, MELLANOX = "0x10de", "0x15b3"
DISPLAY, COMPUTE, BRIDGE, NETWORK = "0x030000", "0x030200", "0x068000", "0x020700"


def device(
    root: Path, pci: str, vendor: str, kind: str, driver: str = "nvidia", *, is_virtual: bool = False
) -> None:
    """Creates a device as the kernel lays it out: the bus has links to the devices."""
    real = root / "sys/devices/pci0000:00" / pci
    real.mkdir(parents=True)
    (real / "vendor").write_text(f"{vendor}\n")
    (real / "class").write_text(f"{kind}\n")
    if driver:
        (real / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    if is_virtual:
        (real / "physfn").symlink_to("../0000:3b:00.0")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / pci).symlink_to(f"../../../devices/pci0000:00/{pci}")
