"""Incident: what broke, on what evidence, who is to blame, and what was done or refused."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from detectors.wire.contract import API_VERSION, Fault, ObjectMeta, Origin
from recover.api.repair_state import Repair
from recover.api.shared import Answered, Blame, GangRef, Wire
from recover.k8s.limits import NAME_CHARS_MAX

__all__ = [
    "Act",
    "ActionRecord",
    "Blame",
    "Evidence",
    "Incident",
    "IncidentPhase",
    "IncidentSpec",
    "IncidentStatus",
    "Outcome",
    "Suspect",
]


class IncidentPhase(StrEnum):
    OPEN = "Open"
    CLOSED = "Closed"


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    WOULD = "would"


class Act(StrEnum):
    """An act that a record of an Incident tells of. The record's field stays text: another version may have
    written an act that this version does not know."""

    QUARANTINE_NODE = "quarantine-node"
    RELEASE_NODE = "release-node"
    RESTART_GANG = "restart-gang"
    MOVE_GANG = "move-gang"
    REPAIR_NODE = "repair-node"
    REMAKE_INCIDENT = "remake-incident"
    LIFT_SPARE = "lift-spare"
    APPLY_RECIPE = "apply-recipe"


class Evidence(Wire, frozen=True, kw_only=True):
    """One thing that was seen. Text of a tenant's log never stands here."""

    at: datetime
    origin: Origin
    code: Annotated[str, Meta(description="finding code, or what the pod or node showed", max_length=63)]
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    pod: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    text: Annotated[str, Meta(max_length=256)] = ""


class Suspect(Wire, frozen=True, kw_only=True):
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    score: Annotated[float, Meta(description="0 to 1", ge=0, le=1)]
    why: Annotated[str, Meta(max_length=256)] = ""


class ActionRecord(Wire, frozen=True, kw_only=True):
    """One thing that was done, would be done, or was refused, and why."""

    at: datetime
    action: Annotated[str, Meta(description="quarantine-node, restart-gang, ...", max_length=63)]
    target: Annotated[str, Meta(max_length=384)]
    outcome: Outcome
    reason: Annotated[str, Meta(description="stable, CamelCase", max_length=63)] = ""
    message: Annotated[str, Meta(max_length=512)] = ""


class IncidentSpec(Wire, frozen=True, kw_only=True):
    """What broke; does not change."""

    fault: Annotated[Fault, Meta(description="class of the first evidence; status.fault has the present one")]
    node: Annotated[str, Meta(description="the node it is about, if any", max_length=NAME_CHARS_MAX)] = ""
    gang: Annotated[GangRef | None, Meta(description="the gang it is about, if any")] = None
    detected_at: Annotated[datetime, Meta(description="time of the first evidence")]
    boot_id: Annotated[str, Meta(description="boot of the node at that time", max_length=64)] = ""


class IncidentStatus(Wire, frozen=True, kw_only=True):
    phase: IncidentPhase = IncidentPhase.OPEN
    summary: Annotated[str, Meta(description="one plain sentence", max_length=512)] = ""
    fault: Annotated[
        Fault | None, Meta(description="worst class that the evidence has shown; empty: as in the spec")
    ] = None
    blame: Blame = Blame.UNKNOWN
    blamed_node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    evidence: Annotated[list[Evidence], Meta(max_length=16)] = []
    suspects: Annotated[list[Suspect], Meta(max_length=8)] = []
    victims: Annotated[list[GangRef], Meta(max_length=32)] = []
    actions: Annotated[list[ActionRecord], Meta(max_length=24)] = []
    cordoned_at: Annotated[
        datetime | None, Meta(description="when its node was taken out of service; hourly limits count this")
    ] = None
    members: Annotated[
        list[Annotated[str, Meta(max_length=NAME_CHARS_MAX)]],
        Meta(description="for a fault on many nodes: nodes that were not acted on", max_length=4096),
    ] = []
    superseded_by: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    closed_at: datetime | None = None
    answered: Annotated[
        Answered | None,
        Meta(description="how far its node's kernel log was known when it closed: what came later is news"),
    ] = None
    unanswered: Annotated[
        bool,
        Meta(
            description="closed because its Node object was gone, because another Incident is about the same "
            "fault, or while no agent reported from the node's boot; the fault still counts"
        ),
    ] = False
    repair: Annotated[Repair | None, Meta(description="how its node is mended, in mode repair")] = None


class Incident(Wire, frozen=True, kw_only=True):
    """What broke, on what evidence, who is to blame, and what was done or refused."""

    api_version: str = API_VERSION
    kind: str = "Incident"
    metadata: ObjectMeta = ObjectMeta()
    spec: IncidentSpec
    status: IncidentStatus = IncidentStatus()

    @property
    def fault(self) -> Fault:
        """The worst class that the evidence shows by now."""
        return self.status.fault or self.spec.fault
