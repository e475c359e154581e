"""Checks whether one safetensors file is complete. Used by the readers of formats that contain such files.

A file has 8 bytes with the header's length, the header as JSON, and the tensors one after the other, so the
expected length of the file is known to the byte. Bytes in the middle of the file that were changed, or never
reached the disk, are not noticed.
Source: huggingface/safetensors, README.md, section Format.
"""

from __future__ import annotations

import struct

import msgspec

from recover.checkpoints.folder import DamagedError, Folder, ForbiddenError
from recover.checkpoints.json_file import decode_json

__all__ = ["SafetensorsFile", "check_safetensors", "check_safetensors_by_name"]

HEADER_BYTES_MAX = 100_000_000
"""Maximum size of a header, the format's own limit."""


class SafetensorsFile(msgspec.Struct, frozen=True):
    """A complete file. `tensors` are those of its header; None if the file may not be read."""

    size_bytes: int
    tensors: frozenset[str] | None


class _Entry(msgspec.Struct, frozen=True):
    """One entry of the header. `data_offsets` is None for `__metadata__`, which is no tensor."""

    data_offsets: tuple[int, int] | None = None


def check_safetensors_by_name(folder: Folder, name: str) -> SafetensorsFile:
    """Does the same as `check_safetensors`, but accepts a file that only its owner may read.

    The file is complete if it has its name, because safetensors 0.8 writes it under another name, with mode
    0600, and then renames it. Bytes that a node had not written yet when it lost its power are not noticed,
    since the library does not wait for the disk.
    Source: strace of `save_file` of safetensors 0.8.0: openat(".tmp...", O_EXCL, 0600), renameat, no fsync.
    """
    try:
        return check_safetensors(folder, name)
    except ForbiddenError:
        size_bytes = folder.size_bytes(name)
        if not folder.is_owners_alone(name):
            raise
    if size_bytes < 8:
        raise DamagedError(f"{name!a:.80} is cut short: it has {size_bytes} bytes")
    return SafetensorsFile(size_bytes, None)


def check_safetensors(folder: Folder, name: str) -> SafetensorsFile:
    """Checks a file. Raises DamagedError if the file is not exactly as long as its header says."""
    with folder.open_file(name) as file:
        if file.size_bytes < 8:
            raise DamagedError(f"{file.name} is cut short: it has {file.size_bytes} bytes")
        (header_bytes,) = struct.unpack("<Q", file.read_at(0, 8))
        if header_bytes > HEADER_BYTES_MAX:
            raise DamagedError(f"{file.name} is not a safetensors file: a header of {header_bytes} bytes")
        if 8 + header_bytes > file.size_bytes:
            raise DamagedError(f"{file.name} is cut short: {file.size_bytes} bytes, its header needs more")
        tensors = _tensors(file.name, file.read_at(8, header_bytes))

    data_bytes = 0
    for begin, end in sorted(tensors.values()):
        if begin != data_bytes or end < begin:
            raise DamagedError(f"{file.name}: the tensors of its header overlap, or have gaps between them")
        data_bytes = end
    needed_bytes = 8 + header_bytes + data_bytes
    if file.size_bytes != needed_bytes:
        raise DamagedError(f"{file.name} has {file.size_bytes} bytes, its header needs {needed_bytes}")
    return SafetensorsFile(file.size_bytes, frozenset(tensors))


def _tensors(file_name: str, header: bytes) -> dict[str, tuple[int, int]]:
    entries = decode_json(f"{file_name}: its header", header, dict[str, _Entry])
    entries.pop("__metadata__", None)
    offsets = {name: entry.data_offsets for name, entry in entries.items() if entry.data_offsets is not None}
    if len(offsets) < len(entries):
        raise DamagedError(f"{file_name}: its header has a tensor without data_offsets")
    return offsets
