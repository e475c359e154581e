"""Decides what is tried on a node, and in which order: reset, reboot, a person. Pure.

The remedy that a finding's source recommends decides where the ladder begins. If the source recommends
nothing, the fault class decides (recover/policy/faults.toml). Among several findings, the finding with the
highest rung decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from detectors.wire.contract import Finding, Remedy, Severity, SubjectKind
from detectors.wire.fitting import refitted
from recover.api import Incident
from recover.api.repair_state import Repair, StepKind
from recover.model import World
from recover.policy.faults import Ladder, policies

__all__ = [
    "broken_devices",
    "earlier_repairs",
    "first_rung",
    "more_asked",
    "next_rung",
]

_RISING: tuple[StepKind | None, ...] = (StepKind.RESET, StepKind.REBOOT, None)
"""Rungs from the bottom. None is the highest rung: a person."""
_BY_REMEDY: dict[Remedy, StepKind | None] = {
    Remedy.RESET_DEVICE: StepKind.RESET,
    Remedy.DRAIN_AND_RESET: StepKind.RESET,
    Remedy.REBOOT_NODE: StepKind.REBOOT,
    Remedy.RESTART_VM: StepKind.REBOOT,
    Remedy.INSPECT: None,
    Remedy.CONTACT_SUPPORT: None,
}
_BY_LADDER: dict[Ladder, StepKind | None] = {
    Ladder.RESET: StepKind.RESET,
    Ladder.REBOOT: StepKind.REBOOT,
    Ladder.PERSON: None,
}


def first_rung(incident: Incident, found: Sequence[Finding], *, again: bool) -> StepKind | None:
    """Returns where the ladder begins for these open findings, or None if only a person can help.

    `again` says that the node was repaired and returned to service not long ago, and did not stay healthy.
    Then no reset is tried first.
    """
    asked = list(_rungs(found))
    rung = max(asked, key=_RISING.index) if asked else _BY_LADDER[policies()[incident.fault].repair]
    return next_rung(rung) if again and rung is StepKind.RESET else rung


def more_asked(repair: Repair, found: Sequence[Finding]) -> Repair:
    """Returns the repair with the findings that are open now. While a repair waits, more may break and need a
    higher rung. The rung never becomes lower."""
    if not found:
        return repair
    rung = max([repair.rung, *_rungs(found)], key=_RISING.index)
    return refitted(repair, rung=rung, devices=broken_devices(found))


def next_rung(rung: StepKind | None) -> StepKind | None:
    return StepKind.REBOOT if rung is StepKind.RESET else None


def _rungs(found: Sequence[Finding]) -> Iterator[StepKind | None]:
    """Yields the rung of each finding. A suspicion about anything but a broken device calls no person: it
    takes no node out of service, so it must not keep a node out that a reset or a reboot repairs."""
    broken = broken_devices([f for f in found if f.severity is not Severity.SUSPECT])
    for finding in found:
        is_suspicion, subject = finding.severity is Severity.SUSPECT, finding.subject
        is_of_a_device = subject.kind is SubjectKind.DEVICE
        may_be_broken = is_of_a_device and (not broken or not subject.device or subject.device in broken)
        rung = _asked(finding)
        if rung is not None or not is_suspicion or may_be_broken:
            yield rung


def _asked(finding: Finding) -> StepKind | None:
    if finding.remedy in _BY_REMEDY:
        return _BY_REMEDY[finding.remedy]
    return _BY_LADDER[policies()[finding.fault].repair]


def broken_devices(found: Sequence[Finding]) -> list[str]:
    """Returns the UUIDs of the broken devices. The list is empty if one UUID is not known, or the node as a
    whole is broken: then all devices are meant."""
    if any(f.subject.kind is not SubjectKind.DEVICE or not f.subject.device for f in found):
        return []
    return sorted({f.subject.device for f in found})


def earlier_repairs(world: World, node: str, window_s: float, now: datetime) -> list[Incident]:
    """Returns the Incidents whose repair returned the node to service within the window, oldest first."""
    since = now - timedelta(seconds=window_s)
    found = []
    for incident in world.incidents.values():
        repair = incident.status.repair
        at = repair.returned_at if repair is not None and incident.spec.node == node else None
        if at is not None and at > since:
            found.append((at, incident))
    return [incident for _, incident in sorted(found, key=lambda pair: pair[0])]
