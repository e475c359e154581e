"""Finds the cgroup folder of a pod. While it is there, the pod runs."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Cgroups"]

_DEPTH_MAX = 4
_V1_CONTROLLERS = ("pids", "memory", "systemd", "cpu", "cpuacct")
_QOS = ("burstable", "besteffort")


class Cgroups:
    """The cgroup tree under a host root: v2 or v1, laid out by cgroupfs (`kubepods/burstable/pod<uid>`) or by
    systemd (`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid, _ for ->.slice`).
    """

    def __init__(self, host_root: Path) -> None:
        self._root = host_root / "sys/fs/cgroup"

    def known(self) -> bool:
        """Whether there is a tree of pods at all; without one, a missing folder says nothing."""
        return any(self._kube_folders(base) for base in self._bases())

    def find(self, uid: str) -> Path | None:
        names = (f"pod{uid}", f"pod{uid.replace('-', '_')}")
        for base in self._bases():
            found = self._search(base, names, _DEPTH_MAX)
            if found is not None:
                return found
        return None

    def _bases(self) -> list[Path]:
        v1 = [self._root / name for name in _V1_CONTROLLERS]
        return [self._root, *(base for base in v1 if base.is_dir())]

    def _search(self, folder: Path, names: tuple[str, str], depth: int) -> Path | None:
        inner = self._kube_folders(folder)
        for child in inner:
            if child.name.removesuffix(".slice").endswith(names):
                return child
        if depth > 0:
            for child in inner:
                if "pod" not in child.name.removeprefix("kubelet-").removeprefix("kubepods"):
                    found = self._search(child, names, depth - 1)
                    if found is not None:
                        return found
        return None

    @staticmethod
    def _kube_folders(folder: Path) -> list[Path]:
        try:
            with os.scandir(folder) as entries:
                return [
                    Path(entry.path)
                    for entry in entries
                    if entry.name.startswith(("kube", "pod", *_QOS)) and entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return []
