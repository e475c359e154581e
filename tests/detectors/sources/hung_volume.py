"""A file system that hangs permanently, by the kernel's own FUSE: its server reads requests and answers none.

A process that waits in this file system is in state D and immune to SIGKILL, like a process that waits for a
driver, or for a file server that is gone. The file system needs the permission to mount, and ends with its
connection.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["healthy", "hung", "needs_mounts", "shared_folder"]

_DEVICE = "/dev/fuse"
_CAP_SYS_ADMIN = 1 << 21
_BIND, _SHARED, _DETACH = 1 << 12, 1 << 20, 2
_INIT = 26
_REQUEST = struct.Struct("IIQQIIII")
_ANSWER = struct.Struct("IiQ")
_INIT_ANSWER = struct.Struct("IIIIHHIIHHI7I")
_REQUEST_BYTES_MAX = 1024 * 1024


def _may_mount() -> bool:
    """Whether this process may mount. Root of a container may have neither the capability nor the device."""
    capabilities = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
    return bool(int(capabilities, 16) & _CAP_SYS_ADMIN) and os.access(_DEVICE, os.R_OK | os.W_OK)


needs_mounts = pytest.mark.skipif(not _may_mount(), reason="needs CAP_SYS_ADMIN and /dev/fuse")


@contextmanager
def shared_folder(folder: Path) -> Iterator[None]:
    """Makes the folder a separate mount that propagates later mounts, like the kubelet's folder of pods on a
    node."""
    _mount(str(folder), folder, "", _BIND)
    try:
        _mount("none", folder, "", _SHARED)
        yield
    finally:
        _unmount(folder)


@contextmanager
def healthy(path: Path) -> Iterator[None]:
    """Mounts a file system in memory at `path`."""
    path.mkdir(parents=True)
    _mount("tmpfs", path, "tmpfs", 0, "size=64m")
    try:
        yield
    finally:
        _unmount(path)


@contextmanager
def hung(path: Path, source: str = "nas:/ckpt") -> Iterator[None]:
    """Mounts a file system that hangs at `path`. At the end the processes that wait in it get an error."""
    path.mkdir(parents=True)
    connection = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={connection},rootmode=40000,user_id=0,group_id=0,allow_other"
    try:
        _mount(source, path, "fuse", 0, options)
    except OSError:
        os.close(connection)
        raise
    over = threading.Event()
    server = threading.Thread(target=_serve, args=(connection, over), daemon=True)
    server.start()
    try:
        yield
    finally:
        _unmount(path)
        over.set()
        server.join(10)
        os.close(connection)  # nobody reads from it now, so the kernel ends the connection


def _serve(connection: int, over: threading.Event) -> None:
    while not over.is_set():
        if not select.select([connection], [], [], 0.1)[0]:
            continue
        try:
            request = os.read(connection, _REQUEST_BYTES_MAX)
        except OSError:
            return
        _, operation, unique, *_ = _REQUEST.unpack_from(request)
        if operation == _INIT:
            told = _INIT_ANSWER.pack(7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7)
            os.write(connection, _ANSWER.pack(_ANSWER.size + len(told), 0, unique) + told)


def _mount(source: str, path: Path, type_: str, flags: int, options: str = "") -> None:
    arguments = (source.encode(), os.fsencode(path), type_.encode(), flags, options.encode())
    if _libc().mount(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def _unmount(path: Path) -> None:
    _libc().umount2(os.fsencode(path), _DETACH)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
