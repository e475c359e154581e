"""Finds files of the training's volume by the paths that the training uses, although it may be mounted
elsewhere here. I/O.

The links in the volume are a tenant's. A link that leads to a place in the volume is followed, also if it is
absolute and begins with the path at which the training mounts the volume (`latest -> /ckpt/step-80`). A link
that leads out of the volume is never followed. Each name is opened in a directory that is kept open, so a
link that takes a directory's place meanwhile changes nothing.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePath, PurePosixPath

import msgspec

__all__ = ["OUTSIDE", "Descriptor", "MountedVolume", "Spot"]

OUTSIDE = "is not in the volume"
"""Part of a reason: the checkpoint may be complete, but only the training itself can see it."""

LINKS_MAX = 40
"""Maximum number of links to follow, the same as Linux's."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# On the way to a directory the permission to search is enough; only Linux has this flag.
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HERE = "."
_ROOT = Path("/")


class Descriptor:
    """An open directory. It is closed when nothing refers to it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class Spot(msgspec.Struct, frozen=True):
    """A name in a directory that is open, after all links."""

    directory: Descriptor
    name: str

    def stat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.directory.number, follow_symlinks=False)

    def open(self, flags: int) -> int:
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.directory.number)

    def open_directory(self) -> Descriptor:
        return Descriptor(os.open(self.name, _DIRECTORY, dir_fd=self.directory.number))


class MountedVolume:
    """A volume. `folder` is the place of the volume here, `path` the place where the training mounts it. By
    default it is the whole file system of this machine, for a person who examines a directory."""

    def __init__(self, folder: Path = _ROOT, path: PurePath = _ROOT) -> None:
        self._top = Descriptor(os.open(folder, _ON_THE_WAY & ~os.O_NOFOLLOW))
        self._path = _names(path)

    def holds(self, path: PurePath) -> bool:
        """Whether the path is in the volume, judged only by its name."""
        return _names(path)[: len(self._path)] == self._path

    def find(self, path: PurePath) -> Spot:
        """Returns the place at this absolute path of the training; nothing need exist there. Raises OSError
        if the way to it does not exist, or leads out of the volume."""
        walk = _Walk(self._top, self._path)
        ahead = [*reversed(_names(path))]
        links = 0
        while ahead:
            name = ahead.pop()
            if name == "..":
                walk.up()
                continue
            target = walk.target_of(name)
            if target is None and not ahead and not walk.is_above():
                return Spot(walk.here(), name)
            if target is None:
                walk.down(name)
                continue
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.is_absolute():
                walk = _Walk(self._top, self._path)
            ahead += reversed(_names(target))
        return Spot(walk.here(), _HERE)


class _Walk:
    """A position on the way from the training's `/`. Above the volume there are no directories, only
    names."""

    def __init__(self, top: Descriptor, mount: tuple[str, ...]) -> None:
        self._mount = mount
        self._at: list[str] = []
        self._open = [top]

    def up(self) -> None:
        if len(self._at) > len(self._mount):
            self._open.pop()
        if self._at:
            self._at.pop()

    def down(self, name: str) -> None:
        if not self.is_above():
            self._open.append(Descriptor(os.open(name, _ON_THE_WAY, dir_fd=self._open[-1].number)))
        elif name != self._mount[len(self._at)]:
            raise self._outside(name)
        self._at.append(name)

    def target_of(self, name: str) -> PurePosixPath | None:
        """Returns the target of the link of that name; None if the name is no link."""
        if self.is_above():
            return None
        try:
            return PurePosixPath(os.readlink(name, dir_fd=self._open[-1].number))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def here(self) -> Descriptor:
        if self.is_above():
            raise self._outside()
        return self._open[-1]

    def is_above(self) -> bool:
        return len(self._at) < len(self._mount)

    def _outside(self, *name: str) -> OSError:
        to = "/" + "/".join([*self._at, *name])
        mount = "/" + "/".join(self._mount)
        return OSError(errno.EXDEV, f"it leads to {to!a:.80}, which {OUTSIDE} at {mount!a:.80}")


def _names(path: PurePath) -> tuple[str, ...]:
    return tuple(name for name in path.parts if name.strip("/"))  # POSIX keeps two leading slashes
