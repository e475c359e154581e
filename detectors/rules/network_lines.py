"""Reads lines of the driver mlx5_core of network adapters, and of the kernel about these adapters. The rows
are in detectors/catalog/network.toml. Another network driver gets a file and a rule of its own, because the
lines of healthy machines are counted for each rule."""

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
