"""Which processes of the node have a GPU open. Read from /proc, whose links name the device files.

The driver resets no GPU that anybody has open, and nvidia-smi does not say who that is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import listdir, readlink
from pathlib import Path

import msgspec

from detectors.wire.contract import Device

__all__ = ["User", "users"]

_ON_OUR_SIDE = frozenset({"nvidia-persistenced", "nv-fabricmanager"})
"""The first lets go when persistence mode is switched off; the second takes part in the reset on NVSwitch
systems of Ampere's time. Source: NVIDIA, nvidia-smi, --gpu-reset."""


class User(msgspec.Struct, frozen=True, order=True):
    pid: int
    """As the node counts."""
    program: str
    device_file: str


def users(host_root: Path, devices: list[Device]) -> list[User]:
    """Of those devices, or of any where none is given; but for those that do not stand in a reset's way."""
    minors = {device.index for device in devices}
    wanted = {f"/dev/nvidia{minor}" for minor in minors if minor is not None}
    found = set()
    for pid in _pids(host_root):
        for file in _open_files(host_root / "proc" / str(pid)):
            is_device = file.startswith("/dev/nvidia") and file.removeprefix("/dev/nvidia").isdigit()
            if file in wanted if wanted else is_device:
                found.add(User(pid, _program(host_root / "proc" / str(pid)), file))
    return sorted(user for user in found if user.program not in _ON_OUR_SIDE)


def _pids(host_root: Path) -> Iterator[int]:
    """Raises OSError where there is no /proc."""
    return (int(name) for name in listdir(host_root / "proc") if name.isdigit())


def _open_files(process: Path) -> Iterator[str]:
    """A process may end at any time."""
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
