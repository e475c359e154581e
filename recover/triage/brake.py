"""Derives the brake: one fault class appeared on too many nodes at once, which single faults do not explain.
Pure.

The brake is derived at each reconcile. Its Incident (held_back_incidents.py) is the memory that the brake was
engaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault
from recover.api import Blame, IncidentPhase
from recover.api.reasons import Reason
from recover.diagnose.diagnosis import Diagnosis
from recover.model import World
from recover.policy.settings import Budgets
from recover.triage.held_back import holds_back

__all__ = ["Brake", "in_force"]


class Brake(msgspec.Struct, frozen=True):
    """One fault class on too many nodes at once."""

    fault: Fault
    since: datetime
    until: datetime
    nodes: int

    @property
    def words(self) -> str:
        seen = f"{self.nodes} nodes" if self.nodes else "many nodes"  # an engaged brake keeps no count
        return (
            f"{self.fault} on {seen} since {self.since:%H:%M:%S} UTC: so many faults at once probably "
            f"have one common cause. Rekindle takes no disruptive action until {self.until:%H:%M:%S} UTC"
        )


def in_force(world: World, diagnoses: Iterable[Diagnosis], limits: Budgets, now: datetime) -> list[Brake]:
    """Returns the brakes that are engaged: of fault classes that struck too many nodes within the window, and
    earlier ones that are still engaged. A node counts by what its findings show now, from the time when its
    strongest finding was first shown, so an older open Incident of the node hides nothing."""
    window = timedelta(seconds=limits.brake_window_s)
    accelerated = world.accelerated()
    found = {}
    struck: dict[Fault, dict[str, datetime]] = {}
    for incident in world.incidents.values():
        spec, status = incident.spec, incident.status
        if spec.detected_at <= now - window:
            continue
        if spec.node:
            if status.blame is Blame.NODE:
                struck.setdefault(incident.fault, {})[spec.node] = spec.detected_at
        elif status.phase is IncidentPhase.OPEN and holds_back(incident) is Reason.FLEET_BRAKE:
            found[spec.fault] = Brake(spec.fault, spec.detected_at, spec.detected_at + window, 0)
    for diagnosis in diagnoses:
        struck_at = diagnosis.struck_at or diagnosis.detected_at
        if diagnosis.node and diagnosis.blame is Blame.NODE and struck_at > now - window:
            struck.setdefault(diagnosis.fault, {})[diagnosis.node] = struck_at
    for fault, nodes in struck.items():
        share = 100 * len(nodes) / max(1, accelerated)
        if len(nodes) >= limits.brake_nodes_min and share > limits.brake_percent:
            first, last = min(nodes.values()), max(nodes.values())
            found[fault] = Brake(fault, first, last + window, len(nodes))
    return sorted(found.values(), key=lambda brake: brake.fault)
