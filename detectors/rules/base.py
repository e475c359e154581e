"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from detectors.catalog.xid import XidCatalog
from detectors.contract import Family
from detectors.facts import Draft, HostFacts, KernelLine

__all__ = ["Rule"]


class Rule(msgspec.Struct, frozen=True):
    name: str
    family: Family
    """The kind of faults that the rule reads. A kind that no rule reads is not covered."""
    heads: tuple[str, ...]
    """Literal beginnings of the lines that it reads. Escapes are undone only after a head matched."""
    match: Callable[[KernelLine, HostFacts, XidCatalog], Draft | None]
