"""What the structs of NodeHealth, in contract.py and training.py, share."""

from __future__ import annotations

import msgspec

__all__ = ["EVIDENCE_BYTES_MAX", "Wire"]

EVIDENCE_BYTES_MAX = 256
"""Of a line that shows a fault or an error."""


class Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Fields are camelCase in the API, and left out where they have their defaults."""
