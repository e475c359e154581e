"""Judges one sample of a pod's volume. The samples come from sources/volumes.py; folds/volumes.py makes
findings from the states. Pure.

A volume is judged by the values that its file system reports to unprivileged users. A value that it does not
report is no data: many file systems count no inodes, and some in user space report no size. A file system
that accepts no writes has no room by its nature, so its room is not judged.
"""

from __future__ import annotations

import errno

import msgspec

from detectors.service.settings import Volumes as Settings
from detectors.text.sizes import size_words

__all__ = [
    "Volume",
    "VolumeSample",
    "broken",
    "bytes_left",
    "described",
    "has_bytes",
    "has_inodes",
    "inodes_left",
    "is_bad",
    "lacks_bytes",
    "lacks_inodes",
]

_BROKEN = {
    errno.EIO: "input/output error",
    errno.ESTALE: "stale file handle",
    errno.ENOTCONN: "not connected",
    errno.ESHUTDOWN: "shut down",
    errno.EHOSTDOWN: "host is down",
    errno.EREMOTEIO: "remote input/output error",
    errno.EUCLEAN: "structure needs cleaning",
}
"""Errors of a file system that no longer serves anyone. All others say only that the call was not answered,
such as EACCES of a file system in user space that belongs to another user."""
_END_FACTOR = 2.0
"""A volume has room again once this many times the limit is free."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of one pod in one sample. Values that could not be read are None or empty."""

    pod: str
    """Uid of the pod."""
    name: str
    """Name by which the kubelet knows it: the persistent volume's name, or without one the name in the pod's
    spec."""
    path: str = ""
    device: str = ""
    """`major:minor` of its file system. Several mounts may have the same file system."""
    type: str = ""
    """Type of the file system: `nfs4`, `ext4`."""
    source: str = ""
    """The source of the mount: a device, or an export of a server."""
    is_read_only: bool = False
    """Whether the file system accepts no writes from anyone."""
    is_mounted_read_only: bool = False
    """Whether it accepts no writes by this mount."""
    bytes: int | None = None
    bytes_free: int | None = None
    """Free bytes for users without privileges."""
    inodes: int | None = None
    inodes_free: int | None = None
    errno: int = 0
    """Error of the call that asked for its room; 0 if there was none."""
    silent_s: float = 0.0
    """Time in seconds within which the call was not answered; 0 if it was answered."""


class VolumeSample(msgspec.Struct, frozen=True):
    """One sample of the node's volumes."""

    volumes: tuple[Volume, ...] = ()
    pods: frozenset[str] = frozenset()
    """Uids of the pods whose volumes were searched for."""


def lacks_bytes(volume: Volume, limits: Settings, *, factor: float = 1.0) -> bool | None:
    """Whether the volume is short of bytes; None if that is not known. With a larger `factor` as much more
    free space counts as short."""
    total, free = volume.bytes, volume.bytes_free
    if total is None or free is None or total <= 0 or not _takes_writes(volume):
        return None
    return free <= factor * min(limits.full_bytes, total * limits.full_percent / 100)


def lacks_inodes(volume: Volume, limits: Settings, *, factor: float = 1.0) -> bool | None:
    total, free = volume.inodes, volume.inodes_free
    if total is None or free is None or total <= 0 or not _takes_writes(volume):
        return None
    return free <= factor * total * limits.full_percent / 100


def has_bytes(volume: Volume, limits: Settings) -> bool:
    """Whether the volume has room clearly enough. With a margin, a volume that goes up and down around the
    limit is one finding."""
    return lacks_bytes(volume, limits, factor=_END_FACTOR) is False


def has_inodes(volume: Volume, limits: Settings) -> bool:
    return lacks_inodes(volume, limits, factor=_END_FACTOR) is False


def is_bad(volume: Volume) -> bool:
    """Whether the volume does not answer, or answers with an error."""
    return bool(volume.silent_s or volume.errno)


def broken(volume: Volume) -> str:
    """Returns the reason why the volume is broken; empty if its file system does not report a break."""
    words = _BROKEN.get(volume.errno)
    return f"answers with {errno.errorcode[volume.errno]} ({words})" if words else ""


def described(volume: Volume, what: str) -> str:
    """Returns the volume and its state as text."""
    of = ", ".join(filter(None, (volume.type, volume.source)))
    return f"volume {volume.name} ({of}) {what}" if of else f"volume {volume.name} {what}"


def bytes_left(volume: Volume) -> str:
    return f"has {size_words(volume.bytes_free or 0)} of {size_words(volume.bytes or 0)} free"


def inodes_left(volume: Volume) -> str:
    return f"has {volume.inodes_free} of {volume.inodes} inodes (files) free"


def _takes_writes(volume: Volume) -> bool:
    return not (volume.is_read_only or volume.is_mounted_read_only or volume.errno or volume.silent_s)
