"""Reads checkpoints of orbax: a step directory of JAX's Orbax, with one item in it or several.

    40/_CHECKPOINT_METADATA   the items, and the time when the checkpoint was committed
    40/commit_success.txt     written last, just before `40.orbax-checkpoint-tmp` is renamed to `40`
    40/state/_METADATA        the tree of arrays, then either an OCDBT database or a directory of each array
    40/state/manifest.ocdbt, d/, ocdbt.process_0/manifest.ocdbt, ocdbt.process_0/d/

The commit decides. The tensors are in an OCDBT database whose nodes are compressed with zstd, and the reader
does not follow these nodes: Python reads zstd from 3.14 on, and the scan's image shall not grow by a library.
A data file that was lost or cut after the commit is noticed if it is empty, if its first node is cut, or if
it was the last of its directory, and not otherwise.
Source: orbax/checkpoint/_src/path/atomicity.py and metadata/checkpoint.py, checked against 0.12.8; the OCDBT
format in TensorStore's documentation.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

import msgspec
from msgspec import Meta

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.json_file import read_json
from recover.checkpoints.ocdbt import MANIFEST, database_bytes
from recover.checkpoints.scan_result import Verdict

__all__ = ["Orbax"]

METADATA, COMMITTED, TREE = "_CHECKPOINT_METADATA", "commit_success.txt", "_METADATA"
METADATA_BYTES_MAX = 64 * 2**20
TEMPORARY = ".orbax-checkpoint-tmp"
TREE_HANDLERS = ("StandardCheckpointHandler", "PyTreeCheckpointHandler", "PyTreeHandler")
ITEMS_MAX = 64
DIMENSIONS_MAX = 64
"""Maximum number of dimensions, the same as numpy's."""
ARRAYS, SHARDING, ZARR, V1_MARKER = "array_metadatas", "_sharding", ".zarray", "orbax.checkpoint"

_JSON = re.compile(r"metadata|_METADATA|_sharding|_CHECKPOINT_METADATA|process_\d+", re.ASCII)
_CHUNK = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_KEY = re.compile(r"'([^']*)'|(\d+)", re.ASCII)
_TEMPORARY_NAME = re.compile(r".+\.orbax-checkpoint-tmp(?:-\d+)?", re.ASCII)


class _Metadata(msgspec.Struct, frozen=True):
    commit_timestamp_nsecs: int | None = None
    item_handlers: dict[str, str] | str | None = None


class _Tree(msgspec.Struct, frozen=True):
    tree_metadata: dict[str, msgspec.Raw]
    use_ocdbt: bool = True
    use_zarr3: bool = False


class _Zarr(msgspec.Struct, frozen=True):
    shape: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=DIMENSIONS_MAX)]
    chunks: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(max_length=DIMENSIONS_MAX)]


class Orbax:
    name = "orbax"

    def recognises(self, folder: Folder) -> bool:
        return (
            METADATA in folder.files
            or COMMITTED in folder.files
            or MANIFEST in folder.files
            or TEMPORARY in folder.path.name
            or any(_TEMPORARY_NAME.fullmatch(name) for name in folder.folders)
        )

    def read(self, folder: Folder, step: int) -> Verdict:
        del step  # only the directory's name contains the step
        if TEMPORARY in folder.path.name:
            raise DamagedError("it still has its temporary name, so the save never finished")
        for name in folder.folders:
            if _TEMPORARY_NAME.fullmatch(name):
                raise DamagedError(f"{name!a:.80} still has its temporary name, so the save never finished")
        metadata = _metadata(folder)
        if not isinstance(metadata.item_handlers, dict):
            return Verdict(complete=True, bytes=_item_bytes(folder, metadata.item_handlers or ""))
        if len(metadata.item_handlers) > ITEMS_MAX:
            raise DamagedError(f"{METADATA} names more than {ITEMS_MAX} items")
        if not metadata.item_handlers:
            raise DamagedError(f"{METADATA} names no items")
        handlers = metadata.item_handlers.values()
        items = [folder.enter(name) for name in metadata.item_handlers]
        if COMMITTED not in folder.files and any(COMMITTED in item.files for item in items):
            raise DamagedError(f"no {COMMITTED}, though its items have one, so the save never finished")
        _check_all_committed(items)
        return Verdict(complete=True, bytes=sum(map(_item_bytes, items, handlers)))


def _metadata(folder: Folder) -> _Metadata:
    if METADATA not in folder.files:
        raise DamagedError(f"no {METADATA}, so the save never finished")
    decoded = read_json(folder, METADATA, _Metadata, limit_bytes=METADATA_BYTES_MAX)
    if decoded.commit_timestamp_nsecs is None:
        raise DamagedError(f"{METADATA} has no time of the commit, so the save never finished")
    if COMMITTED in folder.files and folder.size_bytes(COMMITTED) == 0:
        raise DamagedError(f"{COMMITTED} is empty")
    return decoded


def _check_all_committed(items: list[Folder]) -> None:
    """Checks the commit files of items. Versions differ in whether items have their own commit file; within
    one checkpoint either all items have one or none."""
    having = [item for item in items if COMMITTED in item.files]
    for item in items:
        name = f"{item.path.name!a:.80}"
        if having and item not in having:
            raise DamagedError(
                f"{name}: no {COMMITTED}, though other items have one, so the save never finished"
            )
        if item in having and item.size_bytes(COMMITTED) == 0:
            raise DamagedError(f"{name}: {COMMITTED} is empty")


def _item_bytes(item: Folder, handler: str) -> int:
    """Returns the size of all files that could be measured. An item that is no tree of arrays has files of
    its own handler."""
    if TREE not in item.files:
        if handler.endswith(TREE_HANDLERS) or not item.files.isdisjoint((MANIFEST, SHARDING)):
            raise DamagedError(f"{item.path.name!a:.80}: no {TREE}")
        return _plain_bytes(item)
    tree = read_json(item, TREE, _Tree, limit_bytes=METADATA_BYTES_MAX)
    for folder in (item, *(item.enter(name) for name in item.folders if name == ARRAYS)):
        _plain_bytes(folder)
    if tree.use_ocdbt:
        return database_bytes(item)
    if not tree.tree_metadata:
        raise DamagedError(f"{item.path.name!a:.80}: {TREE} names no arrays")
    return sum(_array_bytes(item.enter(name), tree.use_zarr3) for name in sorted(_array_names(tree)))


def _plain_bytes(item: Folder) -> int:
    """Checks the item's own files: JSON files must be complete, the others must at least not be empty.
    Returns their size."""
    names = sorted(item.files - {COMMITTED, V1_MARKER})
    if not names and not item.folders:
        raise DamagedError(f"{item.path.name!a:.80} is empty")
    for name in names:
        if item.size_bytes(name) == 0:
            raise DamagedError(f"{item.path.name!a:.80}: {name!a:.80} is empty")
        if name.endswith(".json") or _JSON.fullmatch(name):
            read_json(item, name, object, limit_bytes=METADATA_BYTES_MAX)
    return sum(item.size_bytes(name) for name in names)


def _array_names(tree: _Tree) -> set[str]:
    """Returns the names of the arrays' directories: the keys of the tree, joined by dots. `('a', 'b')` is in
    a.b."""
    return {".".join(text or number for text, number in _KEY.findall(key)) for key in tree.tree_metadata}


def _array_bytes(array: Folder, zarr3: bool) -> int:
    """Returns the size of an array. A chunk is one compressed file: its expected length is not known, but it
    is never empty."""
    if zarr3:
        return array.size_bytes("zarr.json")
    header = read_json(array, ZARR, _Zarr, limit_bytes=METADATA_BYTES_MAX)
    if len(header.shape) != len(header.chunks):
        raise DamagedError(f"{array.path.name!a:.80}: {ZARR} does not contain the whole shape")
    chunks = sorted(name for name in array.files if _CHUNK.fullmatch(name))
    needed = math.prod(-(-length // chunk) for length, chunk in zip(header.shape, header.chunks, strict=True))
    if len(chunks) < needed:
        raise DamagedError(f"the array {array.path.name!a:.80} has only {len(chunks)} of {needed} chunks")
    for name in chunks:
        if array.size_bytes(name) == 0:
            raise DamagedError(f"{array.path.name!a:.80}: {name!a:.80} is empty")
    return sum(array.size_bytes(name) for name in chunks)
