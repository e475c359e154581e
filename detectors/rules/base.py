"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from detectors.catalog.xid import XidCatalog
from detectors.facts import Draft, HostFacts, KernelLine

__all__ = ["Rule"]


class Rule(msgspec.Struct, frozen=True):
    name: str
    heads: tuple[str, ...]
    """Literal beginnings of the lines that it reads. Escapes are undone only after a head matched."""
    match: Callable[[KernelLine, HostFacts, XidCatalog], Draft | None]
