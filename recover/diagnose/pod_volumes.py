"""What the agents tell of the volumes that pods mount. Pure; for verdicts.py and gang_faults.py.

A full volume is its job's own matter. One that is silent or broken stands for the storage behind it: where
several nodes show the same one, it is no fault of any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.rules.volume_rows import VOLUME_BROKEN, VOLUME_FULL, VOLUME_INODES, VOLUME_SILENT
from detectors.wire.contract import Finding
from recover.model import World

__all__ = ["Trouble", "failed_volumes", "full_volumes", "volumes_of"]

_FULL = (VOLUME_FULL, VOLUME_INODES)
_FAILED = (VOLUME_SILENT, VOLUME_BROKEN)
_AROUND = timedelta(minutes=3)
"""A look takes up to a minute to come, and a silent volume one more to be told. A rank that has no room ends
within moments, and its volume is unmounted then."""
_SHOWN_MAX = 3


class Trouble(msgspec.Struct, frozen=True):
    """Volumes that were in a bad state when a rank was lost."""

    findings: tuple[Finding, ...] = ()
    nodes: int = 0
    """How many nodes show one of them in such a state."""

    @property
    def words(self) -> str:
        """Empty where there are none."""
        said = "; ".join(finding.evidence for finding in self.findings[:_SHOWN_MAX])
        return f"{said}, and the same is true on {self.nodes} nodes" if self.nodes > 1 else said


def full_volumes(world: World, node: str, pod: str, at: datetime) -> Trouble:
    return Trouble(tuple(_told(world, node, pod, at, _FULL)))


def failed_volumes(world: World, node: str, pod: str, at: datetime) -> Trouble:
    """Silent or broken ones."""
    found = tuple(_told(world, node, pod, at, _FAILED))
    which = {_which(finding) for finding in found}
    nodes = sum(
        any(f.code in _FAILED and _which(f) in which and _is_about(f, at) for f in health.status.findings)
        for health in world.health.values()
    )
    return Trouble(found, nodes if found else 0)


def volumes_of(world: World, node: str, pod: str, at: datetime) -> list[Finding]:
    """In any bad state."""
    return _told(world, node, pod, at, (*_FULL, *_FAILED))


def _told(world: World, node: str, pod: str, at: datetime, codes: Iterable[str]) -> list[Finding]:
    health = world.health.get(node)
    if health is None or not pod:
        return []
    return [
        finding
        for finding in health.status.findings
        if finding.code in codes and finding.subject.pod == pod and _is_about(finding, at)
    ]


def _is_about(finding: Finding, at: datetime) -> bool:
    """It began before, or a moment after, and had not ended long before."""
    ended = finding.cleared_at
    return finding.first_seen <= at + _AROUND and (ended is None or ended >= at - _AROUND)


def _which(finding: Finding) -> str:
    """`volume NAME (TYPE, SOURCE)`, as each agent writes it: names of volumes are a pod's own."""
    return finding.evidence.partition(")")[0]
