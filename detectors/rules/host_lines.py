"""Reads lines about the host itself: lockups, hung tasks, errors of the kernel. The rows are in
detectors/catalog/host.toml."""

from __future__ import annotations

from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family

__all__ = ["RULE", "HostLineRow"]


class HostLineRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = (
        "watchdog: ",
        "NMI watchdog: ",
        "INFO: ",
        "BUG: ",
        "rcu: INFO: ",
        "Oops: ",
        "general protection fault",
        "Unable to handle kernel ",
        "Internal error: ",
        "divide error: ",
        "Kernel panic - not syncing",
        "VFS: file-max limit ",
    )


RULE = sentence_rule(Family.HOST, HostLineRow)
