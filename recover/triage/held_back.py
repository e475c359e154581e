"""Names and recognises the Incidents about many nodes on which Rekindle does not act for one common reason.
Pure; held_back_incidents.py writes them.

The reason is the brake (brake.py), a limit on quarantines (guard.py), a pause, or the end of a pause. Such an
Incident is about one fault class, and its members are the nodes on which Rekindle did not act.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted
from recover.api import Act, ActionRecord, Incident, Outcome
from recover.api.reasons import Reason
from recover.model import World

__all__ = ["CAUSES", "holds_back", "new_name", "refusal_of", "refusals"]

_NAMED = {
    Reason.FLEET_BRAKE: "fleet-brake",
    Reason.BUDGET_EXHAUSTED: "quarantine-limit",
    Reason.PAUSED: "paused",
    Reason.STALE_EVIDENCE: "stale-evidence",
}
"""Beginning of the Incident's name, for each cause."""

CAUSES = tuple(_NAMED)
"""Causes that may hold many nodes back. The guard gives one reason for each node."""


def new_name(world: World, why: Reason, fault: Fault) -> str:
    """Returns the cause, the fault class and the first number that no Incident has. The next reconcile, which
    may come before the cache shows what the last reconcile wrote, therefore chooses the same name."""
    names = (f"{_NAMED[why]}-{fault}-{number}" for number in itertools.count(1))
    return next(name for name in names if world.has_no_incident(name))


def holds_back(incident: Incident) -> Reason | None:
    """Returns the cause that holds the members back, or None for any other Incident. Such an Incident is
    about no node and no gang, and its name has the cause, the fault class and one word more. An Incident with
    advice is about no node and no gang, too, and its name begins with a name that people chose for a job or a
    pod. Further words between that name and the fingerprint show that it is another Incident."""
    spec = incident.spec
    head, _, _ = incident.metadata.name.rpartition("-")
    if spec.node or spec.gang is not None:
        return None
    return next((why for why, prefix in _NAMED.items() if head == f"{prefix}-{spec.fault}"), None)


def refusals(incident: Incident) -> Iterator[ActionRecord]:
    """Yields one refused quarantine for each member: the records that separate Incidents of the members would
    have."""
    for node in incident.status.members:
        yield refusal_of(incident, node)


def refusal_of(incident: Incident, node: str) -> ActionRecord:
    return fitted(
        ActionRecord,
        at=incident.spec.detected_at,
        action=Act.QUARANTINE_NODE,
        target=node,
        outcome=Outcome.REFUSED,
        reason=holds_back(incident) or "",
        message=incident.status.summary,
    )
