"""Reads checkpoints of rekindle-sharded: one file per rank, and `commit.json` with their names and sizes,
written last.

This is the format of the training program in chaos/training, and simple enough for any other program to
write:

    step-40/shard-0-of-2.npz
    step-40/shard-1-of-2.npz
    step-40/commit.json       {"format": "rekindle-sharded", "step": 40, "files": [{"name", "bytes"}, ...]}

A file may also have its "sha256", in hexadecimal.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.scan_result import Verdict

__all__ = ["MARKER", "RekindleSharded", "sha256_of_files"]

MARKER = "commit.json"
MARKER_BYTES_MAX = 32 * 2**20

_SHARD = re.compile(r"shard-\d+-of-\d+\.\w+", re.ASCII)


class ShardFile(msgspec.Struct, frozen=True):
    """One file of the manifest. `sha256` is in hexadecimal, and may be left out."""

    name: str
    bytes: int
    sha256: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    format: Literal["rekindle-sharded"]
    step: int
    files: tuple[ShardFile, ...]


class RekindleSharded:
    name = "rekindle-sharded"

    def recognises(self, folder: Folder) -> bool:
        return MARKER in folder.files or any(_SHARD.fullmatch(name) for name in folder.files)

    def read(self, folder: Folder, step: int) -> Verdict:
        if MARKER not in folder.files:
            shards = sum(_SHARD.fullmatch(name) is not None for name in folder.files)
            return Verdict(
                complete=False, reason=f"no {MARKER}, so the save never finished ({shards} shard files)"
            )
        manifest = _manifest(folder)
        if manifest.step != step:
            raise DamagedError(
                f"{MARKER} says step {manifest.step}, but the name of the directory says step {step}"
            )
        if not manifest.files:
            raise DamagedError(f"{MARKER} names no files")

        total_bytes = 0
        for file in manifest.files:
            size_bytes = folder.size_bytes(file.name)
            total_bytes += size_bytes
            if size_bytes != file.bytes or size_bytes == 0:
                reason = f"{file.name!a:.80} has {size_bytes} bytes, but {MARKER} expects {file.bytes}"
                return Verdict(complete=False, bytes=total_bytes, reason=reason)
        return Verdict(complete=True, bytes=total_bytes)


def sha256_of_files(folder: Folder) -> dict[str, str]:
    """Returns the digest of each file that has one in the manifest; nothing if the file is no such
    manifest."""
    try:
        return {file.name: file.sha256 for file in _manifest(folder).files if file.sha256}
    except DamagedError:
        return {}


def _manifest(folder: Folder) -> _Manifest:
    try:
        return msgspec.json.decode(folder.read(MARKER, limit_bytes=MARKER_BYTES_MAX), type=_Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"{MARKER} is not a manifest: {str(error)!a:.120}") from error
