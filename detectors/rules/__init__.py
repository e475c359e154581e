"""Rules: from one line of a kernel log or a container's log to a draft of a finding, a step, a save.

In: lines and catalogue rows.
Out: drafts, candidates and edges.
Touches: nothing: pure.
"""

from __future__ import annotations

from detectors.catalog.xid import XidCatalog
from detectors.rules import driver, xid_lines
from detectors.rules.base import Rule, is_packet
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family

__all__ = ["FAMILIES", "RULES", "read", "wants"]

RULES: tuple[Rule, ...] = (
    Rule("xid", family=Family.GPU_XID, heads=xid_lines.HEADS, match=xid_lines.match),
    Rule("driver", family=Family.GPU_XID, heads=driver.HEADS, match=driver.match),
)

FAMILIES = [family for family in Family if any(rule.family is family for rule in RULES)]
"""The families that the kernel log is read for, which follow from the registered rules."""

_HEADS = tuple(head for rule in RULES for head in rule.heads)


def wants(text: str) -> bool:
    """Whether any rule may read a line that begins so. Cheap: most kernel lines end here."""
    return text.startswith(_HEADS)


def read(line: KernelLine, host: HostFacts, catalog: XidCatalog) -> Draft | None:
    for rule in RULES:
        if line.text.startswith(rule.heads):
            draft = rule.match(line, host, catalog)
            if draft is not None and not is_packet(line.text):
                return draft
    return None
