"""What a rule is, and what every rule demands of a line before it believes that a driver wrote it.

A head alone proves nothing. The kernel begins some records with a name that a tenant chooses: a process's
(`NAME[4711]: segfault at ...`, and dozens of others), or a network interface's, at most 15 bytes. So the
driver's words that a rule demands are longer than that, to the end of an address and beyond it, with nothing
between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from detectors.catalog.tables import Table, UserRows
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family

__all__ = ["ADDRESS", "Rule", "is_packet"]

C = TypeVar("C")

ADDRESS = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
"""Of a PCI device, whole: `dddd:bb:dd`. Some drivers print more digits of the domain, and the function."""

_PACKET = re.compile(r"IN=\S* OUT=\S* (?:.*? )??(?:\w*SRC=\S* \w*DST=|MAC=(?:[0-9a-f]{2}:){5}|MAC source = )")


class Rule(msgspec.Struct, Generic[C], frozen=True):
    """All that a family's file tells of itself; `RULES` registers it with one line."""

    name: str
    family: Family
    """The kind of faults that the rule reads. A kind that no rule reads is not covered."""
    heads: tuple[str, ...]
    """Literal beginnings of the lines that it reads. Escapes are undone only after a head matched."""
    match: Callable[[KernelLine, HostFacts, C], Draft | None]
    catalog: Callable[[UserRows], C]
    """What it judges a line by: the packaged rows, and those of a user."""
    tables: tuple[Table[Any], ...] = ()
    """Those of its catalogue that a user's file may extend."""


def is_packet(text: str) -> bool:
    """Whether the kernel tells of a packet: the rule of a firewall that asks for it chooses up to 127 bytes
    that stand before. All that is looked for together is longer than a name.
    Source: Linux, net/netfilter/nf_log_syslog.c, net/bridge/netfilter/ebt_log.c.
    """
    return " OUT=" in text and _PACKET.search(text) is not None
