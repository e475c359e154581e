"""Reads errors that PCIe reports (AER), of a GPU, of a network adapter, of a port above them. The rows are in
detectors/catalog/pcie.toml."""

from __future__ import annotations

from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family

__all__ = ["RULE", "PcieRow"]


class PcieRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = (
        "pcieport ",
        "nvidia ",
        "mlx5_core ",
    )


RULE = sentence_rule(Family.PCIE, PcieRow)
