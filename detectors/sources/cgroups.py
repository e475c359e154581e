"""Finds the cgroup folder of a pod. The pod runs as long as this folder exists."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Cgroups"]

_DEPTH_MAX = 4
_V1_CONTROLLERS = ("pids", "memory", "systemd", "cpu", "cpuacct")
_QOS = ("burstable", "besteffort")


class Cgroups:
    """The cgroup tree under a host root: v2 or v1, laid out by cgroupfs (`kubepods/burstable/pod<uid>`) or by
    systemd (`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid, _ for ->.slice`). The tree
    begins at the top, or in a folder of any name, which is the kubelet's `cgroupRoot`."""

    def __init__(self, host_root: Path) -> None:
        self._root = host_root / "sys/fs/cgroup"

    def known(self) -> bool:
        """Whether a tree of pods was found; without a tree, a missing folder proves nothing."""
        return bool(self._bases())

    def find(self, uid: str) -> Path | None:
        names = (f"pod{uid}", f"pod{uid.replace('-', '_')}")
        for base in self._bases():
            found = self._search(base, names, _DEPTH_MAX)
            if found is not None:
                return found
        return None

    def _bases(self) -> list[Path]:
        """Returns the folders in which trees of pods begin."""
        tops = [top for name in _V1_CONTROLLERS if (top := self._root / name).is_dir()] or [self._root]
        bases: list[Path] = []
        for top in tops:
            own_roots = [top] if _kube_folders(top) else _folders(top)
            bases += [folder for folder in own_roots if _kube_folders(folder)]
        return bases

    def _search(self, folder: Path, names: tuple[str, str], depth: int) -> Path | None:
        inner = _kube_folders(folder)
        for child in inner:
            if child.name.removesuffix(".slice").endswith(names):
                return child
        if depth > 0:
            for child in inner:
                if "pod" not in child.name.rpartition("kubepods")[2]:
                    found = self._search(child, names, depth - 1)
                    if found is not None:
                        return found
        return None


def _kube_folders(folder: Path) -> list[Path]:
    return [f for f in _folders(folder) if f.name.startswith(("kube", "pod", *_QOS)) or "kubepods" in f.name]


def _folders(folder: Path) -> list[Path]:
    """Returns the folders in a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
