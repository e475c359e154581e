"""Reads the agents' findings about the volumes that pods mount. Pure; for verdicts.py and gang_faults.py.

A full volume concerns only its own job. A silent or broken volume is evidence about the storage behind it: if
several nodes show the same volume as failed, none of these nodes is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.rules.volume_rows import VOLUME_BROKEN, VOLUME_FULL, VOLUME_INODES, VOLUME_SILENT
from detectors.wire.contract import Finding
from recover.model import World

__all__ = ["Trouble", "failed_volumes", "failed_volumes_of", "full_volumes", "volumes_of"]

_FULL = (VOLUME_FULL, VOLUME_INODES)
_FAILED = (VOLUME_SILENT, VOLUME_BROKEN)
_AROUND = timedelta(minutes=3)
"""Time around a loss within which a finding belongs to the loss. A sample comes after up to a minute, and a
silent volume is reported up to a minute later. A rank that has no room ends within moments, and its volume is
unmounted then."""
_SHOWN_MAX = 3


class Trouble(msgspec.Struct, frozen=True):
    """Volumes that were in a bad state when a rank was lost."""

    findings: tuple[Finding, ...] = ()
    nodes: int = 0
    """Number of nodes that show one of these volumes in such a state."""

    @property
    def words(self) -> str:
        """Words about the volumes; empty if there are none."""
        said = "; ".join(finding.evidence for finding in self.findings[:_SHOWN_MAX])
        return f"{said}, and the same is true on {self.nodes} nodes" if self.nodes > 1 else said


def full_volumes(world: World, node: str, pod: str, at: datetime) -> Trouble:
    return Trouble(tuple(_told(world, node, pod, at, _FULL)))


def failed_volumes(world: World, node: str, pod: str, at: datetime) -> Trouble:
    """Returns the silent or broken volumes of the pod."""
    (trouble,) = failed_volumes_of(world, [(node, pod)], at)
    return trouble


def failed_volumes_of(world: World, pods: Sequence[tuple[str, str]], at: datetime) -> list[Trouble]:
    """Returns the silent or broken volumes of each pod, which is given as its node and its uid. The reports
    of all nodes are read at most once, because all ranks of a gang may mount the volume that fails."""
    found = [_told(world, node, pod, at, _FAILED) for node, pod in pods]
    shown: dict[str, set[str]] = {_which(finding): set() for told in found for finding in told}
    for node, health in world.health.items() if shown else ():
        for finding in health.status.findings:
            which = _which(finding) if finding.code in _FAILED else ""
            if which in shown and _is_about(finding, at):
                shown[which].add(node)
    return [
        Trouble(tuple(told), len(set().union(*(shown[_which(finding)] for finding in told))))
        for told in found
    ]


def volumes_of(world: World, node: str, pod: str, at: datetime) -> list[Finding]:
    """Returns the findings about volumes of the pod in any bad state."""
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
    """Whether the finding belongs to the loss at `at`: it began before the loss, or a moment after, and had
    not ended long before."""
    ended = finding.cleared_at
    return finding.first_seen <= at + _AROUND and (ended is None or ended >= at - _AROUND)


def _which(finding: Finding) -> str:
    """Returns `volume NAME (TYPE, SOURCE)`, as each agent writes it. Names alone identify no volume, because
    each pod chooses the names of its volumes."""
    return finding.evidence.partition(")")[0]
