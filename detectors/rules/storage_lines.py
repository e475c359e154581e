"""Reads lines about local disks, file systems and file servers. Each row is a note, because the volume may
belong to a tenant. The rows are in detectors/catalog/storage.toml."""

from __future__ import annotations

from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family

__all__ = ["RULE", "StorageRow"]


class StorageRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = (
        "nvme nvme",
        "EXT4-fs ",
        "XFS (",
        "I/O error, dev ",
        "blk_update_request: ",
        "print_req_error: ",
        "end_request: I/O error, dev ",
        "critical medium error, dev ",
        "nfs: server ",
        "Buffer I/O error on dev",
        "JBD2: ",
        "Aborting journal on device ",
        "block nvme",
        "md/raid",
        "Lustre: ",
        "LustreError: ",
    )


RULE = sentence_rule(Family.STORAGE, StorageRow)
