"""What the agent gives up before it reads the first byte of a tenant's.

Its container is privileged for the sake of a few devices: the kernel log and those of NVIDIA's driver
(DECISIONS.md says what else was tried). All other rights go at the start, for the agent and each process that
it starts: every capability but CAP_SYSLOG, and by Landlock every access to files but to read what is not a
device and to use those devices. Whoever takes the agent over by a log that it reads cannot mount, trace, load
a module or write to a disk.

The calls are written here: the packages that wrap them are young, and would run with all of those rights.
Sources: kernel.org, userspace-api/landlock; capabilities(7), capset(2), prctl(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["Confined", "confine"]

_SETPCAP, _MKNOD, _SYSLOG = 8, 27, 34
_CAPABILITIES_MAX = 64

_CAPBSET_READ, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _CLEAR_ALL = 23, 24, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same for all architectures

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_USE = _READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL_DEV
_MAKE_DEVICE = 1 << 6
_RIGHTS_OF = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights a version of Landlock knows. From 5 on there are 16 that are named here."""
_SCOPES = 0b11
"""No abstract socket and no signal but among ourselves."""

_HARMLESS = ("null", "zero", "full", "random", "urandom")

_libc = ctypes.CDLL(None, use_errno=True)


class Confined(msgspec.Struct, frozen=True):
    """What holds from now on, in words for the log."""

    capabilities: str
    landlock: int
    """The version that the kernel has; 0 where it has none, and files are as open as they were."""
    devices: str


def confine(host_root: Path, dev: Path = Path("/dev")) -> Confined:
    """Irrevocable. It holds for this thread and what that starts, so no other thread may run yet.

    Raises `OSError` where the kernel has a part of this and refuses it.
    """
    nvidia = sorted(dev.glob("nvidia*"))
    if dev / "nvidiactl" in nvidia:
        kept, use, devices = [_SYSLOG], _USE, [*nvidia, *(dev / name for name in _HARMLESS)]
        told = "NVIDIA's"
    else:  # NVML itself makes the devices of a driver that comes later
        kept, use, devices = [_SYSLOG, _MKNOD], _USE | _MAKE_DEVICE, [dev]
        told = "all, since none of NVIDIA's is there yet"
    is_root = os.geteuid() == 0
    if is_root:
        _bound(kept)
    _prctl(_SET_NO_NEW_PRIVS, 1)
    landlock = _restrict_files(dict.fromkeys(devices, use) | {host_root / "dev/kmsg": _READ_FILE})
    if is_root:
        _keep(kept)
    names = {_SYSLOG: "CAP_SYSLOG", _MKNOD: "CAP_MKNOD"}
    return Confined(" ".join(names[one] for one in kept) if is_root else "none", landlock, told)


# --- capabilities -----------------------------------------------------------------------------------------


def _bound(kept: list[int]) -> None:
    """No program that we start gets more, root's neither."""
    _prctl(_CAP_AMBIENT, _CLEAR_ALL)
    for one in range(_CAPABILITIES_MAX):
        if one not in kept and _libc.prctl(_CAPBSET_READ, one, 0, 0, 0) == 1:
            _prctl(_CAPBSET_DROP, one)


def _keep(kept: list[int]) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, held))
    _, low, _, _, high, _ = struct.unpack("=6I", held.raw)  # effective, permitted, inheritable; 32 at a time
    mask = sum(1 << one for one in kept)
    low, high = low & mask & 0xFFFFFFFF, high & mask >> 32
    _checked(_libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)))


# --- files ------------------------------------------------------------------------------------------------


def _restrict_files(devices: Mapping[Path, int]) -> int:
    try:
        version = _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise
    known = (1 << _RIGHTS_OF.get(version, 16)) - 1
    asked = struct.pack("=QQQ", known, 0, _SCOPES)[: 24 if version >= 6 else 8]
    rules = _syscall(_CREATE_RULESET, asked, ctypes.c_size_t(len(asked)), 0)
    try:
        for path in Path("/").iterdir():
            if path.name != "dev":
                _allow(rules, path, _READ & known)
        for path, rights in devices.items():
            _allow(rules, path, rights & known)
        _syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return version


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = rights if os.path.isdir(path) else rights & _OF_FILES
        _syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, at), 0)
    finally:
        os.close(at)


# --- calls ------------------------------------------------------------------------------------------------


def _prctl(what: int, first: int) -> None:
    _checked(_libc.prctl(what, first, 0, 0, 0))


def _syscall(number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(number, *arguments))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
