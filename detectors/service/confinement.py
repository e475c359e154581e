"""Removes permissions of the agent before it reads the first byte of a tenant's text.

The agent's container is privileged because of a few devices: the kernel log and the devices of the GPUs'
driver (docs/decisions/0018 lists the alternatives that were tried). The agent drops all other permissions at
the start, for itself and each process that it starts: it keeps only the capability CAP_SYSLOG, and by
Landlock it can then only read files that are not devices, and use those few devices and harmless ones such as
/dev/null. An attacker who takes over the agent by a log that the agent reads cannot mount, trace, load a
module or write to a disk.

The exception is a node on which a device of NVIDIA is missing. NVML must be able to create the device there,
so the agent also keeps CAP_MKNOD, CAP_CHOWN, and its access to all of /dev, disks included.

The calls are written here: the packages that wrap them are young, and would run with all of those
permissions.
Sources: kernel.org, userspace-api/landlock; capabilities(7), capset(2), prctl(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

__all__ = ["Confined", "confine"]

_CHOWN, _MKNOD, _SYSLOG = 0, 27, 34
_NAMES = {_CHOWN: "CAP_CHOWN", _MKNOD: "CAP_MKNOD", _SYSLOG: "CAP_SYSLOG"}
_CAPABILITIES_MAX = 64

_CAPBSET_READ, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _CLEAR_ALL = 23, 24, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same for all architectures

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_USE = _READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL_DEV
_MAKE_DEVICES = 1 << 5 | 1 << 6 | 1 << 7
"""Permissions to remove a file, make a device, and make a folder."""
_RIGHTS_OF = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of permissions that a version of Landlock knows. Versions 5 and later know all 16 permissions that
this file uses."""
_SCOPES = 0b11
"""Scopes: no abstract socket and no signal except among our own processes."""

_HARMLESS = ("null", "zero", "full", "random", "urandom")

_libc = ctypes.CDLL(None, use_errno=True)


class Confined(msgspec.Struct, frozen=True):
    """The restrictions from now on, as text for the log."""

    capabilities: str
    landlock: int
    """The version of Landlock that the kernel has; 0 if it has none, and access to files is not
    restricted."""
    devices: str


def confine(host_root: Path, dev: Path = Path("/dev")) -> Confined:
    """Confines this thread and what the thread starts, so no other thread may run yet. The change cannot be
    undone.

    Raises `OSError` if the kernel supports one of the restrictions and refuses to apply it; the others are
    still applied.
    """
    nvidia, iluvatar = sorted(dev.glob("nvidia*")), sorted(dev.glob("iluvatar*"))
    driver = host_root / "proc/driver/nvidia"
    is_iluvatar = bool(iluvatar) and not nvidia and not driver.exists()
    missing = "" if is_iluvatar else _missing({path.name for path in nvidia}, driver)
    if missing:
        kept, use, devices = [_SYSLOG, _MKNOD, _CHOWN], _USE | _MAKE_DEVICES, [dev]
    else:
        kept, use, devices = [_SYSLOG], _USE, [*nvidia, *iluvatar, *(dev / name for name in _HARMLESS)]
    is_root = os.geteuid() == 0
    try:
        if is_root:
            _bound(kept)
    finally:
        try:
            _prctl(_SET_NO_NEW_PRIVS, 1)
            landlock = _restrict_files(
                dict.fromkeys(devices, use) | {host_root / "dev/kmsg": _READ_FILE},
                hidden=[host_root / "var/lib/kubelet/pods"],
            )
        finally:
            if is_root:
                _keep(kept)
    told = f"all, since {missing}" if missing else "Iluvatar's" if is_iluvatar else "NVIDIA's"
    return Confined(" ".join(_NAMES[one] for one in kept) if is_root else "none", landlock, told)


def _missing(devices: set[str], driver: Path) -> str:
    """Returns, in words, which of NVIDIA's devices NVML will have to create; empty if none. If the driver is
    loaded later, these are all of its devices.

    Only names are listed. No file of the driver is read, since a read could wait without end.
    Source: NVIDIA/nvidia-modprobe, modprobe-utils/nvidia-modprobe-utils.c.
    """
    if "nvidiactl" not in devices:
        return "none of NVIDIA's is there yet"
    gpus = len(list((driver / "gpus").glob("*")))
    theirs = sum(name.removeprefix("nvidia").isdecimal() for name in devices)
    if theirs < gpus:
        return f"{theirs} of {gpus} GPUs have theirs"
    if "nvidia-caps" not in devices and any((driver / "capabilities").glob("gpu*/mig/gi*")):
        return "MIG's are not there yet"
    return ""


# --- capabilities -----------------------------------------------------------------------------------------


def _bound(kept: list[int]) -> None:
    """Limits the capabilities of all programs that the agent starts, including programs of root."""
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


def _restrict_files(devices: Mapping[Path, int], hidden: list[Path]) -> int:
    """Restricts access to files by Landlock, and returns its version. `hidden` are folders in which nothing
    may be opened. Landlock does not restrict the calls that read the free space of a file system (statfs)."""
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
        for path in _all_but(Path("/"), [Path("/dev"), *hidden]):
            _allow(rules, path, _READ & known)
        for path, rights in devices.items():
            _allow(rules, path, rights & known)
        _syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return version


def _all_but(folder: Path, hidden: list[Path]) -> Iterator[Path]:
    """Yields the entries of a folder, each complete if nothing in it is hidden. A link adds nothing: its
    target is allowed, or hidden, by its own place."""
    for path in folder.iterdir():
        if path in hidden or path.is_symlink():
            continue
        if any(path in one.parents for one in hidden):
            yield from _all_but(path, hidden)
        else:
            yield path


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a mount that died: nobody can use it
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
