"""Checks one OCDBT database, the key-value store of TensorStore, as far as it can be checked. Used by
orbax.py.

    manifest.ocdbt, d/<id>                              the database that a reader opens
    ocdbt.process_<n>/manifest.ocdbt, .../d/<id>        files of each process; the database refers to them

Manifests and nodes begin with a magic number and their own length. Their content is compressed with zstd and
is not read here, so data files are not counted; each file that begins with a node must contain the complete
node.
Source: TensorStore's documentation, "OCDBT storage format".
"""

from __future__ import annotations

import re

from recover.checkpoints.folder import DamagedError, Folder

__all__ = ["MANIFEST", "database_bytes"]

MANIFEST, DATA = "manifest.ocdbt", "d"
PROCESSES_MAX = 65_536

HEADER_BYTES = 12
"""Size of a header. Tensors of fewer bytes are stored in the nodes, so no file is smaller."""

_MANIFEST_MAGIC = 0x0CDB3A2A
_NODE_MAGICS = (0x0CDB20DE, 0x0CDB1234)
"""Magic numbers of B+trees and of version trees."""
_PROCESS = re.compile(r"ocdbt\.process_\d+", re.ASCII)


def database_bytes(folder: Folder) -> int:
    """Returns the size of all files of the database. Raises DamagedError."""
    processes = [name for name in folder.folders if _PROCESS.fullmatch(name)]
    if len(processes) > PROCESSES_MAX:
        raise DamagedError(f"{len(processes)} directories of processes")
    return _part_bytes(folder) + sum(_part_bytes(folder.enter(name)) for name in processes)


def _part_bytes(folder: Folder) -> int:
    length_bytes, size_bytes = _length(folder, MANIFEST)
    if length_bytes != size_bytes:
        raise DamagedError(
            f"{folder.path.name!a:.80}: {MANIFEST} has {size_bytes} bytes, but its header says {length_bytes}"
        )
    data = folder.enter(DATA)
    if not data.files:
        raise DamagedError(f"{folder.path.name!a:.80}: no data files")
    return size_bytes + sum(_data_bytes(data, name) for name in sorted(data.files))


def _data_bytes(data: Folder, name: str) -> int:
    length_bytes, size_bytes = _length(data, name)
    if length_bytes > size_bytes:
        raise DamagedError(f"{name!a:.80} has {size_bytes} bytes, its first node needs {length_bytes}")
    return size_bytes


def _length(folder: Folder, name: str) -> tuple[int, int]:
    """Returns the length of the file's first part from its header, 0 if that part is a tensor, and the size
    of the file."""
    with folder.open_file(name) as file:
        if file.size_bytes < HEADER_BYTES:
            raise DamagedError(f"{file.name} is cut short: it has {file.size_bytes} bytes")
        header = file.read_at(0, HEADER_BYTES)
        magic, length_bytes = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "little")
        if name == MANIFEST:
            if magic != _MANIFEST_MAGIC:
                raise DamagedError(f"{file.name} is not the manifest of an OCDBT database")
            return length_bytes, file.size_bytes
        return length_bytes if magic in _NODE_MAGICS else 0, file.size_bytes
