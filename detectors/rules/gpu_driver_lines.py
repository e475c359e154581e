"""Reads lines of the GPU driver other than Xids: a device that does not start, links that do not come up. The
rows are in detectors/catalog/gpu_driver.toml."""

from __future__ import annotations

from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family

__all__ = ["RULE", "GpuDriverRow"]


class GpuDriverRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = (
        "NVRM: ",
        "nvidia-peermem ",
    )


RULE = sentence_rule(Family.GPU_DRIVER, GpuDriverRow)
