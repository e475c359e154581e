"""Tells which volumes pods mount, and asks one file system for its room, as each line on its input wants.
volumes.py runs it as a process of its own, since a file server that is gone lets a call wait for ever.

    {"pods": ["<uid>", ...]}   -> {"later": true, "mounts": [{"pod", "name", "path", "type", ...}, ...]}
    {"path": "/host/..."}      -> {"room": [bytes, free bytes, inodes, free inodes]}, or {"errno": 5}

The mounts stand in the process' own table of mounts: no file of a volume is opened, and no folder of one is
listed. Only what Python always loads is imported, since the process stays.

Sources: proc(5), mountinfo; statvfs(3); Kubernetes, pkg/volume/util (GetPath: `pods/<uid>/volumes/<plugin>/
<name>`, below which CSI drivers mount at `mount`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator
from typing import Any

__all__ = ["main", "mounts"]

_MOUNTINFO = "/proc/self/mountinfo"
_CLUSTERS_OWN = frozenset(
    {
        "kubernetes.io~configmap",
        "kubernetes.io~secret",
        "kubernetes.io~projected",
        "kubernetes.io~downward-api",
    }
)
"""The kubelet fills these, and nobody writes there."""
_CSI = "kubernetes.io~csi"
_NAMED_BELOW = {_CSI: ("mount",)}
_MOUNTS_MAX = 256
_SEES_LATER = ("shared:", "master:")


def main() -> int:
    root, mountinfo = (*sys.argv[1:], _MOUNTINFO)[:2]
    for line in sys.stdin:
        asked = json.loads(line)
        told = room(asked["path"]) if "path" in asked else mounts(root, mountinfo, asked["pods"])
        print(json.dumps(told), flush=True)
    return 0


def room(path: str) -> dict[str, Any]:
    try:
        told = os.statvfs(path)
    except OSError as error:
        return {"errno": error.errno or 0}
    unit = told.f_frsize or told.f_bsize
    return {"room": [told.f_blocks * unit, told.f_bavail * unit, told.f_files, told.f_favail]}


def mounts(root: str, mountinfo: str, pods: Collection[str]) -> dict[str, Any]:
    """The volumes of these pods below `root`, and whether those show here that are mounted later."""
    found: dict[str, dict[str, Any]] = {}
    nearest, later = "", False
    before = f"{root}/"
    for fields in _lines(mountinfo):
        path = _unescaped(fields[4])
        if root == path or root.startswith("/" if path == "/" else f"{path}/"):
            if len(path) >= len(nearest):  # what was mounted last on a path hides what was there
                dash = fields.index("-", 6)
                nearest, later = path, any(field.startswith(_SEES_LATER) for field in fields[6:dash])
        elif path.startswith(before) and len(found) < _MOUNTS_MAX:
            volume = _volume(path.removeprefix(before).split("/"), pods)
            if volume is not None:
                found[path] = {**volume, "path": path, **_file_system(fields)}
    return {"later": later, "mounts": list(found.values())}


def _lines(mountinfo: str) -> Iterator[list[str]]:
    with open(mountinfo, encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split()
            if "-" in fields[6:] and len(fields) >= fields.index("-", 6) + 4:
                yield fields


def _volume(parts: list[str], pods: Collection[str]) -> dict[str, str] | None:
    """`<uid>/volumes/<plugin>/<name>`; None for any other mount."""
    if len(parts) < 4 or parts[0] not in pods or parts[1] != "volumes" or parts[2] in _CLUSTERS_OWN:
        return None
    if tuple(parts[4:]) != _NAMED_BELOW.get(parts[2], ()):
        return None
    return {"pod": parts[0], "name": parts[3]}


def _file_system(fields: list[str]) -> dict[str, Any]:
    """Its own flag for reading only, and not that of the mount, which the pod may have asked for."""
    dash = fields.index("-", 6)
    return {
        "device": fields[2],
        "type": fields[dash + 1],
        "source": _unescaped(fields[dash + 2]),
        "is_read_only": "ro" in fields[dash + 3].split(","),
        "is_mounted_read_only": "ro" in fields[5].split(","),
    }


def _unescaped(text: str) -> str:
    """Blanks, tabs, newlines and backslashes stand there as octal numbers."""
    if "\\" not in text:
        return text
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


if __name__ == "__main__":
    sys.exit(main())
