"""Defines a rule, and the proof that every rule requires before it believes that a driver wrote a line.

A head alone proves nothing. The kernel begins some records with a name that a tenant chooses, of at most 15
bytes: the name of a process (`NAME[4711]: segfault at ...`, and dozens of others) or of a network interface.
So a finding may be more than a note only if its line has more than 15 characters that no tenant can choose.
sentences.py counts the driver's literal text, and some characters for each placeholder.
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
"""PCI address with its domain: `dddd:bb:dd`. Some drivers print a longer domain, of up to 8 digits, and some
add the function (`.f`)."""

_PACKET = re.compile(r"IN=\S* OUT=\S* (?:.*? )??(?:\w*SRC=\S* \w*DST=|MAC=(?:[0-9a-f]{2}:){5}|MAC source = )")


class Rule(msgspec.Struct, Generic[C], frozen=True):
    """The reader for the lines of one driver. A file of detectors/rules creates it, and `RULES` registers
    it."""

    name: str
    family: Family
    """The kind of faults that the rule reads. Several rules may read one family. A family is covered if a
    rule reads it, or a reader of detectors/sources."""
    heads: tuple[str, ...]
    """Literal beginnings of the lines that the rule reads. A head must contain no character that /dev/kmsg
    escapes: it is compared with the escaped text (`wants`), and again with the decoded text."""
    match: Callable[[KernelLine, HostFacts, C], Draft | None]
    catalog: Callable[[UserRows], C]
    """Creates the catalogue by which `match` judges a line, from the packaged rows and those of a user."""
    tables: tuple[Table[Any], ...] = ()
    """The TOML tables of its rows, which a user's file may extend."""


def is_packet(text: str) -> bool:
    """Whether the line is netfilter's log of a network packet. Such a line begins with up to 127 bytes that
    the author of the firewall rule chooses, so its beginning may imitate a head. The fixed texts of the
    pattern have more than 15 characters together, so no name that a tenant chooses can contain them.

    Source: Linux, net/netfilter/nf_log_syslog.c, net/bridge/netfilter/ebt_log.c.
    """
    return " OUT=" in text and _PACKET.search(text) is not None
