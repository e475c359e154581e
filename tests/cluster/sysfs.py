"""Devices of a node that the machine does not have. They exist in files that the node sees in its /sys."""

from __future__ import annotations

from pathlib import Path

__all__ = ["NIC", "SWITCH", "lay_sysfs", "port"]

BUS, CLASSES = "sys-bus", "sys-class"
"""Folders that the node sees in addition to its own /sys/bus and /sys/class."""
SWITCH = "0000:c3:00.0"
"""Address of an NVSwitch on the PCI bus."""
NIC = "0000:c1:00.0"
_RDMA = "mlx5_0"


def lay_sysfs(folder: Path) -> None:
    """Writes into the node's folder a switch, and an InfiniBand adapter whose one port is active."""
    for pci in (SWITCH, NIC):
        (folder / BUS / "pci/devices" / pci).mkdir(parents=True)
    adapter = folder / CLASSES / "infiniband" / _RDMA
    (adapter / "ports/1/counters").mkdir(parents=True)
    (adapter / "device").symlink_to(f"../../../devices/pci0000:00/{NIC}")
    (adapter / "board_id").write_text("MT_0000000838\n", encoding="ascii")
    port(folder, is_active=True)


def port(folder: Path, *, is_active: bool) -> None:
    """Sets whether the port of the node's adapter has a link from now on."""
    at = folder / CLASSES / "infiniband" / _RDMA / "ports/1"
    for file, text in {
        "state": "4: ACTIVE" if is_active else "1: DOWN",
        "phys_state": "5: LinkUp" if is_active else "2: Polling",
        "link_layer": "InfiniBand",
        "rate": "400 Gb/sec (4X NDR)",
        "counters/link_downed": "0" if is_active else "1",
    }.items():
        (at / file).write_text(f"{text}\n", encoding="ascii")
