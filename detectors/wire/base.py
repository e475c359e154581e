"""Defines the base of the structs of NodeHealth in contract.py and training.py."""

from __future__ import annotations

import msgspec

__all__ = ["EVIDENCE_BYTES_MAX", "Wire"]

EVIDENCE_BYTES_MAX = 256
"""Maximum size of a line that shows a fault or an error."""


class Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Base of all structs in the API. Field names are camelCase, and fields with default values are left
    out."""
