"""Volumes of pods: what one sample of a volume shows. After sources/volumes.py; folds/volumes.py makes
findings of it. Pure.

A volume is judged by what its file system says of itself to whoever may write there. What it does not tell is
no data: many file systems count no inodes, and some in user space tell no size. One that takes no writes has
no room by its nature.
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
    "has_bytes",
    "has_inodes",
    "inodes_left",
    "is_bad",
    "lacks_bytes",
    "lacks_inodes",
    "told",
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
"""Errors of a file system that serves nobody any more. All others say only that the call was not answered, as
EACCES of a file system in user space that belongs to somebody else."""
_END_FACTOR = 2.0
"""A volume has room again where twice as much is free as a full one may have."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of one pod in one sample. What could not be read is None or empty."""

    pod: str
    """Its uid."""
    name: str
    """As the kubelet calls it: the persistent volume's name, or without one the name in the pod's spec."""
    path: str = ""
    device: str = ""
    """`major:minor` of its file system. Several mounts may be of one."""
    type: str = ""
    """Of the file system: `nfs4`, `ext4`."""
    source: str = ""
    """What is mounted: a device, or an export of a server."""
    is_read_only: bool = False
    """The file system takes no writes, whoever asks."""
    is_mounted_read_only: bool = False
    """It takes none by this mount."""
    bytes: int | None = None
    bytes_free: int | None = None
    """For users without rights."""
    inodes: int | None = None
    inodes_free: int | None = None
    errno: int = 0
    """Of the call that asked for its room."""
    silent_s: float = 0.0
    """The call was not answered within this time; 0 where it was."""


class VolumeSample(msgspec.Struct, frozen=True):
    """One sample of the node."""

    volumes: tuple[Volume, ...] = ()
    pods: frozenset[str] = frozenset()
    """Uids of the pods whose volumes were looked for."""


def lacks_bytes(volume: Volume, limits: Settings, *, factor: float = 1.0) -> bool | None:
    """None where it cannot be said. With a larger `factor` as much more counts as little."""
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
    """So clearly that a volume which goes up and down around the limit is one finding."""
    return lacks_bytes(volume, limits, factor=_END_FACTOR) is False


def has_inodes(volume: Volume, limits: Settings) -> bool:
    return lacks_inodes(volume, limits, factor=_END_FACTOR) is False


def is_bad(volume: Volume) -> bool:
    """It does not answer, or answers with an error."""
    return bool(volume.silent_s or volume.errno)


def broken(volume: Volume) -> str:
    """Why; empty where its file system does not say so."""
    words = _BROKEN.get(volume.errno)
    return f"answers with {errno.errorcode[volume.errno]} ({words})" if words else ""


def told(volume: Volume, what: str) -> str:
    """The volume and its state, for people."""
    of = ", ".join(filter(None, (volume.type, volume.source)))
    return f"volume {volume.name} ({of}) {what}" if of else f"volume {volume.name} {what}"


def bytes_left(volume: Volume) -> str:
    return f"has {size_words(volume.bytes_free or 0)} of {size_words(volume.bytes or 0)} free"


def inodes_left(volume: Volume) -> str:
    return f"has {volume.inodes_free} of {volume.inodes} inodes (files) free"


def _takes_writes(volume: Volume) -> bool:
    return not (volume.is_read_only or volume.is_mounted_read_only or volume.errno or volume.silent_s)
