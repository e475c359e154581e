"""Finds the processes of the node that have a GPU open, from /proc, whose links name the device files.

The driver resets no GPU that any process has open, and nvidia-smi does not name the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import listdir, readlink
from pathlib import Path

import msgspec

from detectors.wire.contract import Device

__all__ = ["User", "users"]

_HARMLESS = frozenset({"nvidia-persistenced", "nv-fabricmanager"})
"""Programs that do not prevent a reset. The first closes the devices when persistence mode is switched off;
the second takes part in the reset on NVSwitch systems of the Ampere generation. Source: NVIDIA, nvidia-smi,
--gpu-reset."""


class User(msgspec.Struct, frozen=True, order=True):
    pid: int
    """Process id in the node's namespace."""
    program: str
    device_file: str


def users(host_root: Path, devices: list[Device]) -> list[User]:
    """Returns the users of those devices, or of any device if none is given, or if no device number is
    known. Processes that do not prevent a reset are left out."""
    minors = {device.index for device in devices}
    wanted = {f"/dev/nvidia{minor}" for minor in minors if minor is not None}
    found = set()
    for pid in _pids(host_root):
        for file in _open_files(host_root / "proc" / str(pid)):
            is_device = file.startswith("/dev/nvidia") and file.removeprefix("/dev/nvidia").isdigit()
            if file in wanted if wanted else is_device:
                found.add(User(pid, _program(host_root / "proc" / str(pid)), file))
    return sorted(user for user in found if user.program not in _HARMLESS)


def _pids(host_root: Path) -> Iterator[int]:
    """Returns the process ids. Raises OSError if there is no /proc."""
    return (int(name) for name in listdir(host_root / "proc") if name.isdigit())


def _open_files(process: Path) -> Iterator[str]:
    """Yields the files that a process has open. The process may end at any time."""
    with contextlib.suppress(OSError):
        for name in listdir(process / "fd"):
            with contextlib.suppress(OSError):
                yield readlink(process / "fd" / name)


def _program(process: Path) -> str:
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_bytes().split(b"\0")
        if words[0]:
            return words[0].decode("utf-8", "replace").rpartition("/")[2][:40]
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    return "?"
