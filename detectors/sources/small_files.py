"""Reads small files of /proc and /sys. The sources of ports and of the host read many of them for each
sample."""

from __future__ import annotations

import os

__all__ = ["text_of"]


def text_of(path: str, bytes_max: int) -> str:
    """Returns the file's first bytes without surrounding blanks; empty if it cannot be read. The built-in
    `open` would cost more."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, bytes_max).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)
