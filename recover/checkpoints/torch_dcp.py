"""Reads checkpoints of torch-dcp: PyTorch Distributed Checkpoint, `.metadata` (written last) and
`__<rank>_<n>.distcp`.

`.metadata` is the pickle of a torch.distributed.checkpoint.metadata.Metadata. Its storage_data maps each
saved piece to a _StorageInfo(relative_path, offset, length, ...): a file must be at least as long as its
furthest piece. The format does not record the step. Megatron-LM writes it, too (`--ckpt-format torch_dcp` and
`fsdp_dtensor`), and loads the iteration that its tracker names.
Source: torch/distributed/checkpoint/filesystem.py and metadata.py, checked against 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from recover.checkpoints.child_process import cpu_s_for, in_child
from recover.checkpoints.folder import TOO_LARGE, DamagedError, Folder
from recover.checkpoints.inert_pickle import Inert, load_inert, memory_for
from recover.checkpoints.megatron import check_tracker_if_any
from recover.checkpoints.scan_result import Verdict

__all__ = ["INDEX", "Piece", "TorchDcp", "pieces", "pieces_in"]

T = TypeVar("T")

INDEX = ".metadata"
INDEX_BYTES_MAX = 256 * 2**20
"""Maximum size of an index. With about 150 bytes a piece, 500 tensors in 1,024 pieces each are about 80 MB.
Reading an index takes about 15 times its bytes of memory, which the scan pod's limit must allow."""

_DATA_FILE = re.compile(r"__\d+_\d+\.distcp", re.ASCII)
_RANK_INDEX = re.compile(r"__\d+\.metadata", re.ASCII)


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A part of a tensor, or a pickled object, within a data file."""

    file: str
    offset_bytes: int
    length_bytes: int


class TorchDcp:
    name = "torch-dcp"

    def recognises(self, folder: Folder) -> bool:
        return any(
            name in (INDEX, f"{INDEX}.tmp") or _DATA_FILE.fullmatch(name) or _RANK_INDEX.fullmatch(name)
            for name in folder.files
        )

    def read(self, folder: Folder, step: int) -> Verdict:
        check_tracker_if_any(folder, step)
        if INDEX not in folder.files:
            if any(_RANK_INDEX.fullmatch(name) for name in folder.files):
                raise DamagedError(
                    "saved without collectives: each rank has an index, and no index says how many ranks "
                    "there were"
                )
            data_files = sum(_DATA_FILE.fullmatch(name) is not None for name in folder.files)
            raise DamagedError(f"no {INDEX}, so the save never finished ({data_files} data files)")

        total_bytes = 0
        for name, needed_bytes in sorted(_needed_bytes(folder).items()):
            size_bytes = folder.size_bytes(name)
            total_bytes += size_bytes
            if size_bytes < needed_bytes:
                reason = f"{name!a:.80} has {size_bytes} bytes, but {INDEX} needs {needed_bytes}"
                return Verdict(complete=False, bytes=total_bytes, reason=reason)
        return Verdict(complete=True, bytes=total_bytes)


def _needed_bytes(folder: Folder) -> dict[str, int]:
    """Returns the end of the furthest piece for every file that the index names."""
    data = _index(folder)
    return _in_child(folder, data, lambda: _needed_in(data), dict[str, int])


def pieces(folder: Folder) -> dict[str, list[Piece]]:
    """Returns all pieces that the index names, by their files. Raises DamagedError if the file is no
    index."""
    data = _index(folder)
    found = _in_child(folder, data, lambda: _places_in(data), dict[str, list[tuple[int, int]]])
    return {file: [Piece(file, *place) for place in places] for file, places in found.items()}


def _places_in(data: bytes) -> dict[str, list[tuple[int, int]]]:
    """Returns offset and length of each piece. Each name occurs once, since names may be long and pieces
    many."""
    found: dict[str, list[tuple[int, int]]] = {}
    for piece in pieces_in(data):
        found.setdefault(piece.file, []).append((piece.offset_bytes, piece.length_bytes))
    return found


def pieces_in(data: bytes) -> Iterator[Piece]:
    """Yields the pieces in the bytes of an index. A hostile index may keep this busy without end."""
    try:
        root = load_inert(data)
    except ValueError as error:
        raise DamagedError(f"{INDEX} is damaged: {str(error)!a:.120}") from error
    stored = root.state.get("storage_data") if isinstance(root, Inert) else None
    if not isinstance(stored, dict) or not stored:
        raise DamagedError(f"{INDEX} is not the index of a distributed checkpoint: it has no storage_data")
    yield from map(_piece, stored.values())


def _index(folder: Folder) -> bytes:
    size_bytes = folder.size_bytes(INDEX)
    if size_bytes > INDEX_BYTES_MAX:
        raise DamagedError(
            f"{INDEX} is {TOO_LARGE}: {size_bytes} bytes; a scan reads at most {INDEX_BYTES_MAX}"
        )
    return folder.read(INDEX, limit_bytes=INDEX_BYTES_MAX)


def _in_child(folder: Folder, data: bytes, work: Callable[[], T], type_: type[T]) -> T:
    return in_child(
        INDEX,
        work,
        type_,
        cpu_s=cpu_s_for(len(data)),
        memory_bytes=memory_for(len(data)),
        check_time=folder.check_time,
    )


def _needed_in(data: bytes) -> dict[str, int]:
    needed: dict[str, int] = {}
    for piece in pieces_in(data):
        needed[piece.file] = max(needed.get(piece.file, 0), piece.offset_bytes + piece.length_bytes)
    return needed


def _piece(piece: object) -> Piece:
    if isinstance(piece, Inert):
        match piece.state:
            case {"relative_path": str(name), "offset": int(offset), "length": int(length)} if (
                offset >= 0 and length >= 0
            ):
                return Piece(name, offset, length)
    raise DamagedError(f"{INDEX} has an entry of storage_data without relative_path, offset and length")
