"""Decides when a gang is stopped for the findings of a node on which it runs. Part of node_faults.py.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from detectors.wire.contract import Finding, Severity
from recover.diagnose.awaited import Awaited
from recover.diagnose.diagnosis import AffectedGang
from recover.diagnose.what_counts import is_proof, strength
from recover.model import Gang, Node, World
from recover.policy.consent import saves_on_sigterm
from recover.policy.faults import QuarantineLevel, quarantine_level
from recover.policy.settings import Timing

__all__ = ["affected_gang", "arrived_at", "due_at", "first_of_the_worst", "is_hardware", "may_wait"]


def is_hardware(finding: Finding) -> bool:
    return quarantine_level(finding.fault, finding.severity) is not QuarantineLevel.NONE


def first_of_the_worst(findings: list[Finding]) -> Finding:
    """Returns the first of the strongest findings. `findings` are in the order of their time."""
    return max(findings, key=strength)


def may_wait(findings: list[Finding]) -> bool:
    """Whether the device is degraded at worst: the training then continues, and the gang leaves at a
    checkpoint."""
    return first_of_the_worst(findings).severity in (Severity.SUSPECT, Severity.PENDING)


def affected_gang(
    gang: Gang,
    findings: list[Finding],
    due: datetime | None,
    awaited: Awaited,
    now: datetime,
    *,
    is_dead: bool,
) -> AffectedGang:
    """Returns the gang with the time at which it is stopped. A dead gang is stopped at once, a living gang
    when the verdict is settled, or at its checkpoint."""
    return AffectedGang(
        gang=gang,
        due=now if is_dead else due,
        dead=is_dead,
        is_suspicion=not any(map(is_proof, findings)),
        may_stay=may_wait(findings),
        awaited=awaited,
    )


def due_at(
    world: World,
    node: Node,
    gang: Gang,
    findings: list[Finding],
    awaited: Awaited,
    known_since: datetime,
    settles_at: datetime | None,
    timing: Timing,
    now: datetime,
) -> datetime | None:
    """Returns when a living gang is stopped for the findings that affect it. The gang leaves a degraded node
    at its next checkpoint, and when the grace period is over at the latest. The grace period begins no sooner
    than Rekindle knows of the finding: the clock of the node, which dates the finding, may be behind by
    hours. A gang that came to a node that was degraded already is not stopped on its arrival, even if it
    saves on SIGTERM: the scheduler may find no other place for the gang again and again."""
    first = first_of_the_worst(findings)
    if not is_hardware(first):
        return None
    came_at = arrived_at(world, node, gang) or first.first_seen
    is_at_once = saves_on_sigterm(gang.annotations) and came_at <= first.first_seen
    if may_wait(findings) and not is_at_once and awaited is not Awaited.SAVED:
        return max(first.first_seen, known_since, came_at) + timedelta(seconds=timing.checkpoint_grace_s)
    return now if settles_at is None or now >= settles_at else settles_at


def arrived_at(world: World, node: Node, gang: Gang) -> datetime | None:
    """Returns when the gang's youngest living pod on the node was created, or None if it has none there."""
    return max(_arrivals(world, node, gang), default=None)


def _arrivals(world: World, node: Node, gang: Gang) -> Iterator[datetime]:
    for pod in world.pods_at(gang.ref.uid, node.name):
        if pod.created is not None and not pod.ended:
            yield pod.created
