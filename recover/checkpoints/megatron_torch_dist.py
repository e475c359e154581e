"""Reads checkpoints of megatron-torch-dist: Megatron-LM's distributed format, `--ckpt-format torch_dist`.

    latest_checkpointed_iteration.txt
    iter_0000040/common.pt          the state that no rank shards; written first
    iter_0000040/__0_0.distcp       as in torch-dcp, whose reader also reads these
    iter_0000040/.metadata          the index, as in torch-dcp
    iter_0000040/metadata.json      written last, also by asynchronous saves

If an iteration is saved again, after a return to an older one, Megatron replaces file by file and keeps the
old metadata.json meanwhile: then only the tracker shows that. An iteration that lost both common.pt and
metadata.json looks like a torch-dcp and is read as one; no interrupted save leaves that.
Source: megatron/core/dist_checkpointing/serialization.py and strategies/, core 0.16.
"""

from __future__ import annotations

import msgspec

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.json_file import read_json
from recover.checkpoints.megatron import check_tracker
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_archive import archive_bytes
from recover.checkpoints.torch_dcp import TorchDcp

__all__ = ["MegatronTorchDist"]

COMMON = "common.pt"
MARKER = "metadata.json"
MARKER_BYTES_MAX = 2**20


class _Marker(msgspec.Struct, frozen=True):
    sharded_backend: str


class MegatronTorchDist:
    name = "megatron-torch-dist"

    def recognises(self, folder: Folder) -> bool:
        return COMMON in folder.files or (MARKER in folder.files and TorchDcp().recognises(folder))

    def read(self, folder: Folder, step: int) -> Verdict:
        if MARKER not in folder.files:
            raise DamagedError(f"no {MARKER}, so the save never finished")
        marker = read_json(folder, MARKER, _Marker, limit_bytes=MARKER_BYTES_MAX)
        if marker.sharded_backend != "torch_dist":
            raise DamagedError(f"{MARKER} says the backend {marker.sharded_backend!a:.40}, not torch_dist")
        check_tracker(folder, step)
        common_bytes = archive_bytes(folder, COMMON)
        shards = TorchDcp().read(folder, step)
        return msgspec.structs.replace(shards, bytes=shards.bytes + common_bytes)
