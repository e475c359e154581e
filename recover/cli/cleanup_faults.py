"""Decides which nodes stay out of service when Rekindle is removed, and names broken nodes that Rekindle
has not quarantined. Pure; for cleanup_command.py.

If Rekindle uncordoned a node with a broken GPU, the next job would be placed on that GPU, when nothing
watches the GPU any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from detectors.wire.contract import CoverageState, NodeHealth, Source
from recover.api import Incident
from recover.diagnose.released import is_released
from recover.diagnose.what_counts import proofs, strength
from recover.model import Node
from recover.stories.words import FAULTS
from recover.triage.quarantine import takes_no_pods

__all__ = ["broken_in_service", "stays_cordoned"]


def stays_cordoned(
    node: Node, health: NodeHealth | None, incidents: Iterable[Incident], now: datetime
) -> str:
    """Returns why a node that Rekindle keeps out of service must stay out, in words; empty if it need not.
    The node takes pods again only if its agent reports, and no proven fault is open. A degraded node
    takes pods already, and a node whose quarantine a person has ended stays as that person left it."""
    if node.quarantine is None or is_released(node) or not takes_no_pods(node):
        return ""
    if fault := _proof(node, health, incidents, now):
        return f"{fault} is open on the node"
    why = _unseen(node, health)
    return f"{why}, so nobody can tell whether its fault ({node.quarantine.fault}) is over" if why else ""


def broken_in_service(
    node: Node, health: NodeHealth | None, incidents: Iterable[Incident], now: datetime
) -> str:
    """Returns the proven fault of a node that takes pods and that Rekindle has not quarantined; empty if
    there is none."""
    out = node.unschedulable or node.quarantine is not None
    return "" if out else _proof(node, health, incidents, now)


def _proof(node: Node, health: NodeHealth | None, incidents: Iterable[Incident], now: datetime) -> str:
    worst = max(proofs(node, health, incidents, now), key=strength, default=None)
    if worst is None:
        return ""
    device = worst.subject.pci or worst.subject.device
    return f"{worst.code} ({FAULTS[worst.fault]}{f', {device}' if device else ''})"


def _unseen(node: Node, health: NodeHealth | None) -> str:
    if not node.ready:
        return "its kubelet does not report to Kubernetes"
    if health is None:
        return "no agent reports from the node"
    if node.boot_id and health.status.boot_id != node.boot_id:
        return "its agent has not reported since the last boot of the node"
    rows = {row.source: row.state for row in health.status.coverage}
    if rows.get(Source.KMSG) is not CoverageState.COVERED:
        return "its agent does not read its kernel log"
    return ""
