"""Shows one directory to the readers: names at once, sizes and small files on demand, everything bounded.

The files belong to a tenant and may be anything: a FIFO must not block the scan, a link may lead nowhere or
out of the volume (volume.py), and a directory may have millions of names.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import PurePath

from recover.checkpoints.volume import MountedVolume, Spot

__all__ = [
    "FORBIDDEN",
    "NAMES_MAX",
    "ODD",
    "TOO_LARGE",
    "UNREADABLE",
    "DamagedError",
    "Folder",
    "ForbiddenError",
    "OpenFile",
    "OutOfTimeError",
    "odd",
    "why",
]

UNREADABLE = "cannot be read"
"""Part of a reason: the system refused the read, which proves nothing about the data."""

FORBIDDEN = f"{UNREADABLE}: {os.strerror(errno.EACCES)}"
"""Part of a reason: this process' user may not read the file. Another user may be able to."""

TOO_LARGE = "too large to be judged"
"""Part of a reason: the checkpoint may be complete, so nothing older is chosen in its place."""

NAMES_MAX = 200_000
"""Maximum number of names. 16,384 ranks with several files each are far below; a directory with more is no
checkpoint directory."""


NAMES_PER_LOOK_AT_THE_CLOCK = 1000

ODD = (ArithmeticError, MemoryError, RecursionError, ValueError)
"""Errors that Python raises for numbers, depths and lengths that no reader expects, such as an integer with
more digits than Python prints. A file with such content is damaged: it must not keep the job from its earlier
checkpoint."""


class DamagedError(Exception):
    """The directory cannot be a complete checkpoint. The message says why, in plain words."""


class ForbiddenError(DamagedError):
    """This process' user may not read the file. Another user may be able to."""


class OutOfTimeError(Exception):
    """The scan's time is over; checkpoints that were not examined stay unknown."""


class OpenFile:
    """A plain file that is open to read parts of it. `name` is the name for people."""

    def __init__(self, name: str, descriptor: int, size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._descriptor = descriptor

    def read_at(self, offset_bytes: int, count_bytes: int) -> bytes:
        """Returns exactly `count_bytes` bytes. Raises DamagedError if the file ends before, or cannot be
        read."""
        parts: list[bytes] = []
        missing_bytes = count_bytes
        while missing_bytes > 0:
            try:
                part = os.pread(self._descriptor, missing_bytes, offset_bytes + count_bytes - missing_bytes)
            except OSError as error:
                raise DamagedError(f"{self.name} {UNREADABLE}: {why(error)}") from error
            if not part:
                raise DamagedError(f"{self.name} ends before byte {offset_bytes + count_bytes}")
            parts.append(part)
            missing_bytes -= len(part)
        return b"".join(parts)


class Folder:
    """Names of one directory's files and folders, without a stat of each. `path` is absolute, as the training
    sees it, and may contain links.

    Raises OSError if the directory cannot be listed, and DamagedError if it has too many names. Names need
    not be UTF-8: code that prints a name escapes it.
    """

    def __init__(
        self, path: PurePath, check_time: Callable[[], None], volume: MountedVolume | None = None
    ) -> None:
        self.path = path
        self.check_time = check_time
        self._volume = volume or MountedVolume()
        self._directory = self._volume.find(path).open_directory()
        files: set[str] = set()
        folders: list[str] = []
        with os.scandir(self._directory.number) as entries:
            for count, entry in enumerate(entries, start=1):
                if count > NAMES_MAX:
                    raise DamagedError(f"more than {NAMES_MAX} names in one directory")
                if count % NAMES_PER_LOOK_AT_THE_CLOCK == 0:
                    check_time()
                if self._is_folder(entry):
                    folders.append(entry.name)
                else:
                    files.add(entry.name)
        self.files = frozenset(files)
        self.folders = tuple(sorted(folders))

    def only(self, names: Collection[str]) -> Folder:
        """Returns the same directory as if it had only these files: for a checkpoint that is only some
        files."""
        view = copy.copy(self)
        view.files = self.files.intersection(names)
        view.folders = ()
        return view

    def open(self, name: str) -> Folder:
        """Returns the folder with that name. Raises the same errors as Folder()."""
        self.check_time()
        return Folder(self.path / name, self.check_time, self._volume)

    def enter(self, name: str) -> Folder:
        """Returns a folder of this one. Raises DamagedError if the name is not a readable directory in this
        one."""
        if name not in self.folders:
            raise DamagedError(f"the directory {name!a:.80} is missing")
        try:
            return self.open(name)
        except OSError as error:
            raise DamagedError(f"the directory {name!a:.80} {UNREADABLE}: {why(error)}") from error

    def size_bytes(self, name: str) -> int:
        """Returns the size of a file, without opening the file. Raises DamagedError if the name is not a
        plain file of this directory, or if it is a link that leads nowhere or out of the volume."""
        return self._plain(name)[1]

    def modified_s(self, name: str) -> float:
        """Returns when a file was last written, in seconds since the epoch. Raises DamagedError like
        `size_bytes`."""
        return self._plain(name)[0].stat().st_mtime

    def is_owners_alone(self, name: str) -> bool:
        """Whether only its owner may read or write that file. Raises DamagedError like `size_bytes`."""
        return self._plain(name)[0].stat().st_mode & 0o077 == 0

    def _plain(self, name: str) -> tuple[Spot, int]:
        """Returns the place of the file itself, and its size. Raises DamagedError."""
        self.check_time()
        if name in (".", "..") or "/" in name or "\0" in name:
            raise DamagedError(f"the index names {name!a:.80}, which is not a file of this directory")
        if name not in self.files:
            raise DamagedError(f"{name!a:.80} is missing")
        spot = Spot(self._directory, name)
        try:
            info = spot.stat()
            if stat.S_ISLNK(info.st_mode):
                spot = self._volume.find(self.path / name)
                info = spot.stat()
        except OSError as error:
            raise DamagedError(f"{name!a:.80} {UNREADABLE}: {why(error)}") from error
        if not stat.S_ISREG(info.st_mode):
            raise DamagedError(f"{name!a:.80} is not a plain file")
        return spot, info.st_size

    @contextmanager
    def open_file(self, name: str) -> Iterator[OpenFile]:
        """Opens a file. Raises DamagedError like `size_bytes`, and if the file cannot be opened."""
        spot, _ = self._plain(name)
        with _open(spot, name) as file:
            yield file

    def read(self, name: str, *, limit_bytes: int) -> bytes:
        """Returns the content of a small file. Raises DamagedError if the file is too large or cannot be
        read."""
        with self.open_file(name) as file:
            return _read(file, limit_bytes)

    def read_beside(self, name: str, *, limit_bytes: int) -> bytes | None:
        """Returns a small file beside this directory, such as a tracker; None if there is none."""
        self.check_time()
        if not self._volume.holds(self.path.parent):
            return None
        try:
            spot = self._volume.find(self.path.parent / name)
            spot.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DamagedError(f"{name!a:.80} {UNREADABLE}: {why(error)}") from error
        with _open(spot, name) as file:
            return _read(file, limit_bytes)

    def is_link(self, name: str) -> bool:
        """Whether the name is a link to something elsewhere."""
        return stat.S_ISLNK(Spot(self._directory, name).stat().st_mode)

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            if not entry.is_symlink():
                return entry.is_dir(follow_symlinks=False)
            self.check_time()  # a link may lead through thousands of names
            return stat.S_ISDIR(self._volume.find(self.path / entry.name).stat().st_mode)
        except OSError:  # a link that leads in a circle, nowhere, or out of the volume
            return False


@contextmanager
def _open(spot: Spot, name: str) -> Iterator[OpenFile]:
    try:
        # The open is non-blocking: if a FIFO has taken the file's place since, opening it must not wait.
        descriptor = spot.open(os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError as error:
        raise ForbiddenError(f"{name!a:.80} {UNREADABLE}: {why(error)}") from error
    except OSError as error:
        raise DamagedError(f"{name!a:.80} {UNREADABLE}: {why(error)}") from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise DamagedError(f"{name!a:.80} is not a plain file")
        yield OpenFile(f"{name!a:.80}", descriptor, info.st_size)
    finally:
        os.close(descriptor)


def _read(file: OpenFile, limit_bytes: int) -> bytes:
    if file.size_bytes > limit_bytes:
        raise DamagedError(f"{file.name} has {file.size_bytes} bytes; a scan reads at most {limit_bytes}")
    return file.read_at(0, file.size_bytes)


def odd(error: BaseException) -> str:
    """Returns the reason for one of the errors ODD."""
    return f"it has content that no trainer writes: {type(error).__name__}: {str(error)!a:.120}"


def why(error: OSError) -> str:
    return error.strerror or type(error).__name__
