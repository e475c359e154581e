"""Lists the volumes that pods mount, and asks one file system for its room, as each input line requests.

volumes.py runs this module as a separate process, since a call to a file server that is gone may wait without
end.

    mounts <uid> <uid>  -> mounts later|never, and after a tab for each mount:
                           <pod> <name> <path> <device> <type> <source> rw|ro rw|ro
    room <path>         -> room <bytes> <free bytes> <inodes> <free inodes>, or errno 5

Words are written as in mountinfo, where a blank is \\040. The mounts are read from the process' own table of
mounts: no file of a volume is opened, and no folder of a volume is listed.

A process is started for each sample, so only modules that Python always loads are imported: `json` and
`typing` alone would double the cost of a start.
Sources: proc(5), mountinfo; statvfs(3); Kubernetes, pkg/volume/util (GetPath:
`pods/<uid>/volumes/<plugin>/<name>`, below which CSI drivers mount at `mount`).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["escaped", "main", "mounts", "unescaped"]

_MOUNTINFO = "/proc/self/mountinfo"
_CLUSTERS_OWN = frozenset(
    {
        "kubernetes.io~configmap",
        "kubernetes.io~secret",
        "kubernetes.io~projected",
        "kubernetes.io~downward-api",
    }
)
"""Plugins whose volumes the kubelet fills. No program writes there."""
_CSI = "kubernetes.io~csi"
_NAMED_BELOW = {_CSI: ("mount",)}
_MOUNTS_MAX = 256
_SEES_LATER = ("shared:", "master:")


def main() -> int:
    root, mountinfo = (*sys.argv[1:], _MOUNTINFO)[:2]
    for line in sys.stdin.buffer:
        asked, *words = line.decode().strip().split(" ")
        told = room(unescaped(words[0])) if asked == "room" else mounts(root, mountinfo, words)
        sys.stdout.buffer.write(f"{told}\n".encode())
        sys.stdout.buffer.flush()
    return 0


def room(path: str) -> str:
    try:
        told = os.statvfs(path)
    except OSError as error:
        return f"errno {error.errno or 0}"
    unit = told.f_frsize or told.f_bsize
    return f"room {told.f_blocks * unit} {told.f_bavail * unit} {told.f_files} {told.f_favail}"


def mounts(root: str, mountinfo: str, pods: Collection[str]) -> str:
    """Returns the volumes of these pods below `root`, and whether mounts that are made later show here."""
    found: dict[str, str] = {}
    nearest, later = "", False
    before = f"{root}/"
    for fields in _lines(mountinfo):
        path = unescaped(fields[4])
        if root == path or root.startswith("/" if path == "/" else f"{path}/"):
            if len(path) >= len(nearest):  # the last mount on a path hides earlier ones
                dash = fields.index("-", 6)
                nearest, later = path, any(field.startswith(_SEES_LATER) for field in fields[6:dash])
        elif path.startswith(before) and len(found) < _MOUNTS_MAX:
            volume = _volume(path.removeprefix(before).split("/"), pods)
            if volume is not None:
                found[path] = f"{escaped(volume[0])} {escaped(volume[1])} {fields[4]} {_file_system(fields)}"
    return "\t".join((f"mounts {'later' if later else 'never'}", *found.values()))


def _lines(mountinfo: str) -> Iterator[list[str]]:
    with open(mountinfo, encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            # Other blanks do not separate, since they may occur in a name.
            fields = line.rstrip("\n").split(" ")
            if "-" in fields[6:] and len(fields) >= fields.index("-", 6) + 4:
                yield fields


def _volume(parts: list[str], pods: Collection[str]) -> tuple[str, str] | None:
    """Returns pod and name of `<uid>/volumes/<plugin>/<name>`; None for any other mount."""
    if len(parts) < 4 or parts[0] not in pods or parts[1] != "volumes" or parts[2] in _CLUSTERS_OWN:
        return None
    if tuple(parts[4:]) != _NAMED_BELOW.get(parts[2], ()):
        return None
    return parts[0], parts[3]


def _file_system(fields: list[str]) -> str:
    """Returns device, type, source, the file system's own read-only flag, and that of the mount, which the
    pod may have requested."""
    dash = fields.index("-", 6)
    flags = ("ro" if "ro" in options.split(",") else "rw" for options in (fields[dash + 3], fields[5]))
    return " ".join((fields[2], fields[dash + 1], fields[dash + 2], *flags))


def unescaped(text: str) -> str:
    """Decodes blanks, tabs, newlines and backslashes, which are written as octal numbers."""
    if "\\" not in text:
        return text
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def escaped(text: str) -> str:
    for char, code in (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")):
        text = text.replace(char, code)
    return text


if __name__ == "__main__":
    sys.exit(main())
