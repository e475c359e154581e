"""Checks whether a file of torch.save is complete, and reads its plain values. Used by the readers of formats
built on torch.save.

Its pickle is never run, and the tensors are never read:

- the zip format: the directory of a zip is at its very end, so a file that is cut anywhere has none.
- the legacy format (`_use_new_zipfile_serialization=False`): the pickle says how long each storage is, so the
  length of the file is known to the byte.

Neither check notices bytes that were changed, or never reached the disk, in the middle of a file of full
length.
Source: torch/serialization.py and caffe2/serialize/inline_container.cc, checked against 2.15; for the zip
itself, PKWARE's APPNOTE 6.3.10.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from recover.checkpoints.child_process import cpu_s_for, in_child, more_cpu_for
from recover.checkpoints.folder import DamagedError, Folder, OpenFile
from recover.checkpoints.inert_pickle import (
    Inert,
    Scalar,
    is_scalar,
    load_inert,
    load_next_inert,
    memory_for,
    named_shortly,
    scalars,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

__all__ = ["DIRECTORY_BYTES_MAX", "ENTRIES_MAX", "Outline", "archive_bytes", "outline"]

Outline = dict[str, Scalar | dict[str, Scalar]]

DIRECTORY_BYTES_MAX = 64 * 2**20
"""Maximum size of a zip's directory. With about 100 bytes a tensor this is more than half a million
tensors."""

ENTRIES_MAX = 500_000
"""Maximum number of entries. An optimizer of 60 layers with 256 experts in one file has about 140,000. A
directory of the smallest entries could contain more than a million."""
ENTRIES_PER_LOOK_AT_THE_CLOCK = 10_000
_ENTRY_SIGN = b"PK\x01\x02"

PICKLE_BYTES_MAX = 64 * 2**20
EXTRA_FIELDS_MAX = 32
"""Maximum number of extra fields. torch writes one at most."""

_ZIP_BEGIN = b"PK\x03\x04"
_LEGACY_BEGIN = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""The pickle of torch's magic number."""

_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_NOT_HERE_16, _NOT_HERE_32 = 0xFFFF, 0xFFFFFFFF
"""Marks for a number that does not fit, and is in the zip64 part with more bits."""

_ITEM_BYTES = {
    "ComplexDoubleStorage": 16,
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    **dict.fromkeys(("ByteStorage", "CharStorage", "BoolStorage", "UntypedStorage"), 1),
}


class _Record(msgspec.Struct, frozen=True):
    name: bytes
    offset_bytes: int
    stored_bytes: int
    compressed: bool


def archive_bytes(folder: Folder, name: str) -> int:
    """Returns the file's size. Raises DamagedError if it is not a complete file of torch.save."""
    with folder.open_file(name) as file:
        if _begins_as_zip(file):
            _pickle_record(file, folder.check_time)
        else:
            in_child(
                file.name,
                lambda: _check_legacy(file),
                type(None),
                cpu_s=cpu_s_for(0),
                memory_bytes=memory_for(min(file.size_bytes, PICKLE_BYTES_MAX)),
                check_time=folder.check_time,
            )
        return file.size_bytes


def outline(folder: Folder, name: str) -> Outline:
    """Returns the outermost dictionary of a complete file in the zip format. Plain values are unchanged; an
    object becomes a dictionary of its plain attributes; any other value becomes an empty dictionary. Raises
    DamagedError if the file is damaged, legacy, or contains no dictionary."""
    with folder.open_file(name) as file:
        if not _begins_as_zip(file):
            raise DamagedError(f"{file.name} is not in the zip format of torch.save")
        data = _stored(file, _pickle_record(file, folder.check_time))
    return in_child(
        file.name,
        lambda: _outline_of(file.name, data),
        Outline,
        cpu_s=cpu_s_for(len(data)),
        memory_bytes=memory_for(len(data)),
        check_time=folder.check_time,
    )


def _outline_of(name: str, data: bytes) -> Outline:
    try:
        root = load_inert(data, elsewhere=lambda _: Inert())
    except ValueError as error:
        raise DamagedError(f"{name}: its pickle is damaged: {str(error)!a:.120}") from error
    if not isinstance(root, dict):
        raise DamagedError(f"{name} does not contain a dictionary")
    return {key: _plain(value) for key, value in root.items() if named_shortly(key)}


def _plain(value: Any) -> Scalar | dict[str, Scalar]:
    if is_scalar(value):
        plain: Scalar = value
        return plain
    return scalars(value.state) if isinstance(value, Inert) else {}


def _begins_as_zip(file: OpenFile) -> bool:
    begin = file.read_at(0, min(len(_LEGACY_BEGIN), file.size_bytes))
    if begin.startswith(_ZIP_BEGIN):
        return True
    if begin == _LEGACY_BEGIN:
        return False
    if _ZIP_BEGIN.startswith(begin) or _LEGACY_BEGIN.startswith(begin):
        raise DamagedError(f"{file.name} is cut short: it has {len(begin)} bytes")
    raise DamagedError(f"{file.name} was not written by torch.save")


def _pickle_record(file: OpenFile, check_time: Callable[[], None]) -> _Record:
    """Returns the one record that every archive has."""
    found = [record for record in _records(file, check_time) if record.name.endswith(b"/data.pkl")]
    if len(found) != 1:
        raise DamagedError(f"{file.name} is a zip file without data.pkl, so torch.save did not write it")
    return found[0]


def _records(file: OpenFile, check_time: Callable[[], None]) -> list[_Record]:
    """Returns all records in the zip's directory. Each must be within the file, and none may overlap
    another."""
    offset_bytes, size_bytes = _directory(file)
    if size_bytes > DIRECTORY_BYTES_MAX:
        raise DamagedError(f"{file.name} has a zip directory of {size_bytes} bytes, more than are read")
    records = _parse_directory(file.name, file.read_at(offset_bytes, size_bytes), check_time)
    free_bytes = 0
    for record in sorted(records, key=lambda record: record.offset_bytes):
        if record.offset_bytes < free_bytes:
            raise DamagedError(f"{file.name}: records of its zip overlap")
        free_bytes = record.offset_bytes + _LOCAL.size + len(record.name) + record.stored_bytes
    if free_bytes > offset_bytes:
        raise DamagedError(f"{file.name}: a record of its zip ends after the end of the file")
    return records


def _directory(file: OpenFile) -> tuple[int, int]:
    """Returns offset and size of the zip's directory. torch writes no comment, so the directory's end is the
    file's end."""
    cut = DamagedError(f"{file.name} is cut short: no zip directory at its end")
    at_bytes = file.size_bytes - _END.size
    if at_bytes < 0:
        raise cut
    sign, _, _, _, entries, size_bytes, offset_bytes, comment = _END.unpack(file.read_at(at_bytes, _END.size))
    if sign != b"PK\x05\x06" or comment:
        raise cut
    if _NOT_HERE_32 in (size_bytes, offset_bytes) or entries == _NOT_HERE_16:
        at_bytes -= _END64_LOCATOR.size
        if at_bytes < _END64.size:
            raise cut
        sign, _, end64_bytes, _ = _END64_LOCATOR.unpack(file.read_at(at_bytes, _END64_LOCATOR.size))
        at_bytes -= _END64.size
        sign64, *_, size_bytes, offset_bytes = _END64.unpack(file.read_at(at_bytes, _END64.size))
        if (sign, sign64, end64_bytes) != (b"PK\x06\x07", b"PK\x06\x06", at_bytes):
            raise cut
    if offset_bytes + size_bytes > at_bytes:
        raise cut
    return offset_bytes, size_bytes


def _parse_directory(file_name: str, directory: bytes, check_time: Callable[[], None]) -> list[_Record]:
    records: list[_Record] = []
    at = 0
    while at < len(directory):
        if len(records) % ENTRIES_PER_LOOK_AT_THE_CLOCK == 0:
            check_time()
        if len(records) == ENTRIES_MAX:
            raise DamagedError(f"{file_name} has a zip directory of more than {ENTRIES_MAX} entries")
        if len(directory) - at < _ENTRY.size:
            raise DamagedError(f"{file_name}: its zip directory is damaged")
        fields = _ENTRY.unpack_from(directory, at)
        sign, method = fields[0], fields[4]
        stored_bytes, full_bytes, name_bytes, extra_bytes, comment_bytes = fields[8:13]
        offset_bytes = fields[16]
        at += _ENTRY.size
        name = directory[at : at + name_bytes]
        extra = directory[at + name_bytes : at + name_bytes + extra_bytes]
        at += name_bytes + extra_bytes + comment_bytes
        if sign != _ENTRY_SIGN or at > len(directory):
            raise DamagedError(f"{file_name}: its zip directory is damaged")
        _, stored_bytes, offset_bytes = _wide(file_name, extra, full_bytes, stored_bytes, offset_bytes)
        records.append(_Record(name, offset_bytes, stored_bytes, compressed=method != 0))
    return records


def _wide(file_name: str, extra: bytes, *narrow: int) -> list[int]:
    """Returns the same numbers; numbers that did not fit are read from the zip64 extra field, in the same
    order."""
    if _NOT_HERE_32 not in narrow:
        return list(narrow)
    at = 0
    for _ in range(EXTRA_FIELDS_MAX):
        if len(extra) - at < 4:
            break
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            count = sum(number == _NOT_HERE_32 for number in narrow)
            if min(size, len(extra) - at - 4) < 8 * count:
                break
            wide = iter(struct.unpack_from(f"<{count}Q", extra, at + 4))
            return [next(wide) if number == _NOT_HERE_32 else number for number in narrow]
        at += 4 + size
    raise DamagedError(f"{file_name}: its zip directory is damaged")


def _stored(file: OpenFile, record: _Record) -> bytes:
    if record.compressed or record.stored_bytes > PICKLE_BYTES_MAX:
        raise DamagedError(f"{file.name}: its data.pkl is compressed or larger than {PICKLE_BYTES_MAX} bytes")
    local = _LOCAL.unpack(file.read_at(record.offset_bytes, _LOCAL.size))
    if local[0] != _ZIP_BEGIN:
        raise DamagedError(f"{file.name}: no data.pkl where its zip directory says")
    return file.read_at(record.offset_bytes + _LOCAL.size + local[9] + local[10], record.stored_bytes)


class _Stream(io.RawIOBase):
    """The part of a legacy file that the unpickler reads. The part is small, since the tensors come after the
    pickles."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._at_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        count = min(len(view), min(self._file.size_bytes, PICKLE_BYTES_MAX) - self._at_bytes)
        view[:count] = self._file.read_at(self._at_bytes, count)
        self._at_bytes += count
        more_cpu_for(count)
        return count

    def tell(self) -> int:
        return self._at_bytes


def _check_legacy(file: OpenFile) -> None:
    """Checks a legacy file: five pickles (magic number, protocol, system, object, keys of the storages), and
    then the storages."""
    stream = io.BufferedReader(_Stream(file))
    storages: dict[object, int] = {}

    def elsewhere(pid: object) -> Inert:
        match pid:
            case ("storage", kind, key, _, int(numel), *_) if isinstance(kind, type):
                item_bytes = _ITEM_BYTES.get(cast(type[Inert], kind).of.rpartition(".")[2], 0)
                if item_bytes == 0 or numel < 0:
                    raise ValueError("a storage of an unknown type")
                storages[key] = 8 + numel * item_bytes
        return Inert()

    limit_bytes = min(file.size_bytes, PICKLE_BYTES_MAX)
    try:
        for _ in range(4):
            load_next_inert(stream, limit_bytes=limit_bytes, elsewhere=elsewhere)
        keys = load_next_inert(stream, limit_bytes=limit_bytes)
    except ValueError as error:
        raise DamagedError(f"{file.name} is cut short or damaged: {str(error)!a:.120}") from error
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(map(str, storages)):
        raise DamagedError(f"{file.name} is damaged: its list of storages does not match its tensors")
    needed_bytes = stream.tell() + sum(storages.values())
    if file.size_bytes != needed_bytes:
        raise DamagedError(f"{file.name} has {file.size_bytes} bytes, its storages need {needed_bytes}")
