"""Sets findings aside that prove nothing about their node, because somebody works on the node's driver. Pure.

A driver that is replaced, or a device that gets a different MIG layout, looks like broken hardware for a
while. Such a finding is no proof and no suspicion until the work is over and the node's agent has had time
for a new sample. what_counts.py leaves the finding out. The work answers nothing: the Incident of the node
stays open as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from detectors.wire.contract import Finding, NodeHealth, Origin
from detectors.wire.open_findings import is_open
from recover.diagnose.signals import as_findings
from recover.model import Node, World
from recover.policy.driver_work import DriverWork, driver_work

__all__ = ["aside_origins", "counts_again", "has_findings", "of_this_boot", "set_aside"]


def of_this_boot(node: Node, health: NodeHealth | None, now: datetime) -> Iterator[Finding]:
    """Yields the open findings of the node's present boot, answered or not, and the findings from other
    controllers' signals."""
    if health is not None:
        boot = node.boot_id or health.status.boot_id
        for finding in health.status.findings:
            if is_open(finding) and finding.boot_id == boot == health.status.boot_id:
                yield finding
    yield from as_findings(node, now)


def has_findings(node: Node, health: NodeHealth | None) -> bool:
    """Whether the node has any finding or signal. Most nodes have none, and are skipped."""
    return bool(node.signals) or (health is not None and bool(health.status.findings))


def aside_origins(node: Node, now: datetime) -> frozenset[Origin]:
    """Returns the origins of findings that do not count now."""
    return frozenset(origin for work in driver_work(node, now) for origin in work.origins)


def set_aside(
    node: Node | None, health: NodeHealth | None, now: datetime
) -> Iterator[tuple[Finding, DriverWork]]:
    """Yields the findings that do not count now, each with the work that explains it."""
    if node is None or not has_findings(node, health):
        return
    under_way = driver_work(node, now)
    for finding in of_this_boot(node, health, now) if under_way else ():
        work = next((one for one in under_way if finding.origin in one.origins), None)
        if work is not None:
            yield finding, work


def counts_again(world: World, now: datetime) -> Iterator[datetime]:
    """Yields the times at which findings that are set aside count again, unless the work continues with
    another state."""
    for name, health in world.subjects.health.items():
        for _, work in set_aside(world.nodes.get(name), health, now):
            if work.until is not None:
                yield work.until
