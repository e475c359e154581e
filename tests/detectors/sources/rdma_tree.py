"""The part of /sys that shows RDMA adapters and their ports, as a folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RdmaTree"]

_STATES = {1: "1: DOWN", 2: "2: INIT", 3: "3: ARMED", 4: "4: ACTIVE"}
_PHYSICAL = {2: "2: Polling", 3: "3: Disabled", 5: "5: LinkUp"}


class RdmaTree:
    """The part of /sys below `root`, which is the agent's --host-root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/class").mkdir(parents=True)
        (root / "sys/bus/pci/devices").mkdir(parents=True)

    def adapter(self, name: str, pci: str, *, of: str = "", board_id: str = "MT_0000000838") -> Path:
        """Creates a function on the bus with an RDMA device; `of` makes it a virtual function of another
        function."""
        function = self.root / "sys/devices/pci0000:00" / pci
        device = function / "infiniband" / name
        (device / "ports").mkdir(parents=True)
        (device / "device").symlink_to(f"../../../{pci}")
        (device / "board_id").write_text(f"{board_id}\n")
        if of:
            (function / "physfn").symlink_to(f"../{of}")
        bus = self.root / "sys/bus/pci/devices" / pci
        bus.symlink_to(f"../../../devices/pci0000:00/{pci}")
        classes = self.root / "sys/class/infiniband"
        classes.mkdir(exist_ok=True)
        (classes / name).symlink_to(f"../../devices/pci0000:00/{pci}/infiniband/{name}")
        return device

    def port(
        self,
        device: Path,
        number: int = 1,
        *,
        state: int = 4,
        phys_state: int = 5,
        link_layer: str = "InfiniBand",
        rate: str = "400 Gb/sec (4X NDR)",
        **counters: int,
    ) -> Path:
        port = device / "ports" / str(number)
        (port / "counters").mkdir(parents=True, exist_ok=True)
        for file, text in {
            "state": _STATES[state],
            "phys_state": _PHYSICAL[phys_state],
            "link_layer": link_layer,
            "rate": rate,
            **{f"counters/{name}": str(count) for name, count in counters.items()},
        }.items():
            (port / file).write_text(f"{text}\n")
        return port

    def netdev(self, device: Path, name: str, **files: object) -> Path:
        """Creates a network device with files by name; `flags` is a number. The carrier of a device that is
        off cannot be read."""
        folder = device.parents[1] / "net" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, value in files.items():
            (folder / file).write_text(f"{value:#x}\n" if file == "flags" else f"{value}\n")
        return folder

    def remove(self, pci: str, name: str, *, from_bus: bool = False) -> None:
        (self.root / "sys/class/infiniband" / name).unlink()
        if from_bus:
            (self.root / "sys/bus/pci/devices" / pci).unlink()
