"""One directory as the readers see it: names at once, sizes and small files on demand, everything bounded.

The files belong to a tenant and may be anything: a FIFO must not block the scan, a link may lead nowhere,
and a directory may hold millions of names.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

__all__ = ["DamagedError", "Folder", "OutOfTimeError", "why"]

NAMES_MAX = 200_000
"""16,384 ranks with several files each are far below; beyond it is no checkpoint directory."""


class DamagedError(Exception):
    """The directory cannot be a complete checkpoint. The message says why, in plain words."""


class OutOfTimeError(Exception):
    """The scan's time is over; what was not examined stays unknown."""


class Folder:
    """Names of one directory's files and folders, without a stat of each.

    Raises OSError when the directory cannot be listed, and DamagedError when it holds too many names.
    """

    def __init__(self, path: Path, check_time: Callable[[], None]) -> None:
        self.path = path
        self._check_time = check_time
        files: set[str] = set()
        folders: list[str] = []
        with os.scandir(path) as entries:
            for count, entry in enumerate(entries, start=1):
                if count > NAMES_MAX:
                    raise DamagedError(f"more than {NAMES_MAX} names in one directory")
                if _is_folder(entry):
                    folders.append(entry.name)
                else:
                    files.add(entry.name)
        self.files = frozenset(files)
        self.folders = tuple(sorted(folders))

    def size_bytes(self, name: str) -> int:
        """Raises DamagedError when the name is not a plain readable file of this directory."""
        self._check_time()
        if name in (".", "..") or "/" in name or "\0" in name:
            raise DamagedError(f"the index names {name!a:.80}, which is not a file of this directory")
        if name not in self.files:
            raise DamagedError(f"{name!a:.80} is missing")
        try:
            info = (self.path / name).stat()
        except OSError as error:
            raise DamagedError(f"{name!a:.80} cannot be read: {why(error)}") from error
        if not stat.S_ISREG(info.st_mode):
            raise DamagedError(f"{name!a:.80} is not a plain file")
        return info.st_size

    def read(self, name: str, *, limit_bytes: int) -> bytes:
        """The whole of a small file. Raises DamagedError when it is too large or cannot be read."""
        size_bytes = self.size_bytes(name)
        if size_bytes > limit_bytes:
            raise DamagedError(f"{name!a:.80} has {size_bytes} bytes; at most {limit_bytes} are read")
        try:
            # Non-blocking: should a FIFO have taken the file's place since, opening it must not wait.
            descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                return file.read(limit_bytes)
        except OSError as error:
            raise DamagedError(f"{name!a:.80} cannot be read: {why(error)}") from error


def why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle
        return False
