"""Defines the rows of nvlink.toml: bits of the seven register words that an Xid 74 line shows."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.load import packaged_rows
from detectors.wire.contract import Severity

__all__ = ["NvLinkBits", "packaged_nvlink_bits"]


class NvLinkBits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bits of one register that have the same meaning."""

    name: str
    register: Annotated[int, Meta(ge=1, le=7)]
    """Number of the register: the first word of the line is register 1."""
    bits: Annotated[tuple[Annotated[int, Meta(ge=0, le=31)], ...], Meta(min_length=1)]
    meaning: str
    severity: Severity
    reason: str = ""
    """Our decision and its reason, if NVIDIA leaves it open."""
    source: str


def packaged_nvlink_bits() -> tuple[NvLinkBits, ...]:
    return tuple(packaged_rows("nvlink.toml", "nvlink_bits", NvLinkBits))
