"""Reads lines of the drivers of network adapters. The rows are in detectors/catalog/network.toml."""

from __future__ import annotations

from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family

__all__ = ["RULE", "NetworkRow"]


class NetworkRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = (
        "mlx5_core ",
        "NETDEV WATCHDOG: ",
    )


RULE = sentence_rule(Family.NETWORK, NetworkRow)
