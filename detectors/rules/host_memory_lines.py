"""Reads lines about host memory and processors: EDAC, memory failures, errors that firmware reports (CPER).
The rows are in detectors/catalog/host_memory.toml; machine_check.py decodes machine checks."""

from __future__ import annotations

from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family

__all__ = ["RULE", "HostMemoryRow"]


class HostMemoryRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = ("EDAC MC", "Memory failure: ", "mce: ", "[Hardware Error]: ", "{")


RULE = sentence_rule(Family.HOST_MEMORY, HostMemoryRow)
