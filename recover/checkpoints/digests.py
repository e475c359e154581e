"""Reads every byte of a checkpoint and compares it with the digests that its format stores. Only on request.

    files of torch.save, also those within a torch-dcp    the CRC-32 of each zip entry
    rekindle-sharded                                      the SHA-256 of each file, if commit.json has one

All other files are read, too, since a disk may return errors; but no digest shows whether their data is what
was written. scan.py calls this module as soon as a checkpoint looks complete.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from recover.checkpoints.folder import DamagedError, Folder, OpenFile, OutOfTimeError
from recover.checkpoints.rekindle_sharded import MARKER, sha256_of_files
from recover.checkpoints.torch_archive import DIRECTORY_BYTES_MAX, ENTRIES_MAX
from recover.checkpoints.torch_dcp import INDEX, Piece, pieces

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["check_digests", "not_checked"]

CHUNK_BYTES = 2**20
DEPTH_MAX = 8
"""Maximum depth of directories. No checkpoint is deeper."""

_ZIP_BEGIN = b"PK\x03\x04"
_ENTRY_BYTES = 46
_LENGTHS = struct.Struct("<3H")
_LENGTHS_AT = 28
"""Position at which an entry of a zip's directory has the lengths of its name, its extra field and its
comment."""
EXTRA_BYTES_MAX = 128
"""Maximum size of an extra field. torch writes 32 bytes at most. zipfile copies the rest of an extra field
for each of its parts."""
_OF_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    ValueError,
    OverflowError,
    MemoryError,
)
"""Errors that zipfile raises for an archive that is damaged, or that torch did not write."""


class _Read(msgspec.Struct):
    """How far the check has come."""

    bytes: int = 0
    compared_bytes: int = 0


def check_digests(folder: Folder, total_bytes: int) -> str:
    """Returns in plain words what was compared. Raises DamagedError if something differs or cannot be read.
    If the time ends first, the text says how far the check came, and nothing is known to be wrong."""
    done = _Read()
    try:
        _check(folder, done, DEPTH_MAX)
    except OutOfTimeError:
        return not_checked(done.bytes, total_bytes)
    if not done.compared_bytes:
        return f"no digests to compare with; all {_size(done.bytes)} could be read"
    without = done.bytes - done.compared_bytes
    rest = f"; {_size(without)} have none" if without else ""
    return f"digests of {_size(done.compared_bytes)} are correct{rest}"


def not_checked(read_bytes: int, total_bytes: int) -> str:
    return f"digests not checked: the time was over after {_size(read_bytes)} of {_size(total_bytes)}"


def _check(folder: Folder, done: _Read, depth_left: int) -> None:
    sha256 = sha256_of_files(folder) if MARKER in folder.files else {}
    of_index = pieces(folder) if INDEX in folder.files else {}
    for name in filter(partial(_is_plain, folder), sorted(folder.files)):
        with folder.open_file(name) as file:
            if name in sha256:
                _check_sha256(file, sha256[name], folder, done)
            elif name in of_index:
                _check_pieces(file, of_index[name], folder, done)
            elif file.size_bytes >= len(_ZIP_BEGIN) and file.read_at(0, len(_ZIP_BEGIN)) == _ZIP_BEGIN:
                _check_zip(file, Piece(name, 0, file.size_bytes), folder, done)
            else:
                _read(file, Piece(name, 0, file.size_bytes), folder, done)
    for name in folder.folders if depth_left else ():
        if not folder.is_link(name):
            _check(folder.enter(name), done, depth_left - 1)


def _is_plain(folder: Folder, name: str) -> bool:
    """Whether the entry is a plain file. Any other entry was no part of the checkpoint; otherwise the
    checkpoint would not have been found complete."""
    try:
        folder.size_bytes(name)
    except DamagedError:
        return False
    return True


def _check_pieces(file: OpenFile, found: list[Piece], folder: Folder, done: _Read) -> None:
    """Checks the pieces of a file. A tensor's piece is itself a file of torch.save; a pickled object has no
    digest."""
    for piece in found:
        folder.check_time()
        begin = file.read_at(piece.offset_bytes, min(piece.length_bytes, len(_ZIP_BEGIN)))
        (_check_zip if begin == _ZIP_BEGIN else _read)(file, piece, folder, done)


def _check_sha256(file: OpenFile, expected: str, folder: Folder, done: _Read) -> None:
    digest = hashlib.sha256()
    for chunk in _chunks(file, Piece(file.name, 0, file.size_bytes), folder, done):
        digest.update(chunk)
    if digest.hexdigest() != expected.lower():
        raise DamagedError(f"{file.name} is damaged: its SHA-256 is not the one in {MARKER}")
    done.compared_bytes += file.size_bytes


def _check_zip(file: OpenFile, piece: Piece, folder: Folder, done: _Read) -> None:
    """Checks an archive. zipfile compares the CRC of an entry when its last byte has been read."""
    try:
        with zipfile.ZipFile(_Window(file, piece)) as archive:
            for entry in archive.infolist():
                folder.check_time()
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise DamagedError(f"{file.name} is compressed, as torch.save never does")
                with archive.open(entry) as content:
                    while chunk := content.read(CHUNK_BYTES):
                        done.bytes += len(chunk)
                        done.compared_bytes += len(chunk)
                        folder.check_time()
    except _OF_ZIP as error:
        raise DamagedError(f"{file.name} is damaged: {str(error)!a:.120}") from error


def _read(file: OpenFile, piece: Piece, folder: Folder, done: _Read) -> None:
    for _ in _chunks(file, piece, folder, done):
        pass


def _chunks(file: OpenFile, piece: Piece, folder: Folder, done: _Read) -> Iterator[bytes]:
    at, end = piece.offset_bytes, piece.offset_bytes + piece.length_bytes
    while at < end:
        folder.check_time()
        chunk = file.read_at(at, min(CHUNK_BYTES, end - at))
        at += len(chunk)
        done.bytes += len(chunk)
        yield chunk


class _Window(io.RawIOBase):
    """A part of a file as a file, for zipfile."""

    def __init__(self, file: OpenFile, piece: Piece) -> None:
        self._file = file
        self._piece = piece
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Reads data. zipfile reads a zip's complete directory at once, whatever size the zip claims for
        it."""
        if size > DIRECTORY_BYTES_MAX:
            raise zipfile.BadZipFile(f"it asks for {size} bytes at once, more than {DIRECTORY_BYTES_MAX}")
        data = super().read(size) or b""
        if len(data) > CHUNK_BYTES:
            _demand_modest(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._piece.length_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._piece.length_bytes - self._at))
        view[:count] = self._file.read_at(self._piece.offset_bytes + self._at, count)
        self._at += count
        return count


def _demand_modest(directory: bytes) -> None:
    """Raises BadZipFile if the zip's directory (the list of its entries) is so long that zipfile would parse
    it for a long time, since zipfile does not check the clock."""
    at = entries = 0
    while at + _ENTRY_BYTES <= len(directory):
        name_bytes, extra_bytes, comment_bytes = _LENGTHS.unpack_from(directory, at + _LENGTHS_AT)
        entries += 1
        if entries > ENTRIES_MAX:
            raise zipfile.BadZipFile(f"its directory has more than {ENTRIES_MAX} entries")
        if extra_bytes > EXTRA_BYTES_MAX:
            raise zipfile.BadZipFile(f"its directory has an extra field of {extra_bytes} bytes")
        at += _ENTRY_BYTES + name_bytes + extra_bytes + comment_bytes


def _size(count_bytes: int) -> str:
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
