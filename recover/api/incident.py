"""Incident: the fault, its evidence, its cause, and the actions that Rekindle did or refused."""

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
    """Actions that a record of an Incident can have. The record's field stays text: another version may have
    written an action that this version does not know."""

    QUARANTINE_NODE = "quarantine-node"
    RELEASE_NODE = "release-node"
    RESTART_GANG = "restart-gang"
    MOVE_GANG = "move-gang"
    REPAIR_NODE = "repair-node"
    REMAKE_INCIDENT = "remake-incident"
    LIFT_SPARE = "lift-spare"
    APPLY_RECIPE = "apply-recipe"


class Evidence(Wire, frozen=True, kw_only=True):
    """One observation. Evidence never contains text from a tenant's log."""

    at: datetime
    """Time at which the agent or the controller made the observation."""
    origin: Origin
    """Origin of the evidence. Evidence whose origin is `tenant` never cordons a node."""
    code: Annotated[
        str, Meta(description="Code of the finding, or the state that the pod or node showed.", max_length=63)
    ]
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """Node on which the evidence was found."""
    pod: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """Pod in which the evidence was found, if any."""
    text: Annotated[str, Meta(max_length=256)] = ""
    """The line or the reported state."""


class Suspect(Wire, frozen=True, kw_only=True):
    """A node that may have caused the fault."""

    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Name of the node."""
    score: Annotated[
        float, Meta(description="Likelihood from 0 to 1 that this node caused the fault.", ge=0, le=1)
    ]
    why: Annotated[str, Meta(max_length=256)] = ""
    """Reason for the suspicion."""


class ActionRecord(Wire, frozen=True, kw_only=True):
    """One action that Rekindle did, would do, or refused, with the reason."""

    at: datetime
    """Time of the decision."""
    action: Annotated[
        str, Meta(description="The action, for example quarantine-node or restart-gang.", max_length=63)
    ]
    target: Annotated[str, Meta(max_length=384)]
    """The node or job that the action is about."""
    outcome: Outcome
    """`done` if Rekindle took the action, `would` if the mode allows Rekindle only to report the action,
    `refused` if a rule or limit forbids the action."""
    reason: Annotated[
        str,
        Meta(
            description="Stable reason in CamelCase; docs/reference/reasons.md explains each one.",
            max_length=63,
        ),
    ] = ""
    message: Annotated[str, Meta(max_length=512)] = ""
    """Explanation in plain words."""


class IncidentSpec(Wire, frozen=True, kw_only=True):
    """The fault as its first evidence showed it. The spec never changes."""

    fault: Annotated[
        Fault, Meta(description="Fault class of the first evidence; `status.fault` has the present class.")
    ]
    node: Annotated[
        str, Meta(description="Node that the Incident is about, if any.", max_length=NAME_CHARS_MAX)
    ] = ""
    gang: Annotated[GangRef | None, Meta(description="Job that the Incident is about, if any.")] = None
    detected_at: Annotated[datetime, Meta(description="Time of the first evidence.")]
    boot_id: Annotated[str, Meta(description="Id of the node's boot at that time.", max_length=64)] = ""


class IncidentStatus(Wire, frozen=True, kw_only=True):
    """Cause, evidence, decisions and repair, as they are known now. Only the controller writes the status."""

    phase: IncidentPhase = IncidentPhase.OPEN
    """`Open` while Rekindle treats the fault as present, `Closed` afterwards."""
    summary: Annotated[str, Meta(description="The fault and its cause in one sentence.", max_length=512)] = ""
    fault: Annotated[
        Fault | None,
        Meta(
            description="Most severe fault class that the evidence has shown. The field is absent while "
            "this class equals the fault class in the spec."
        ),
    ] = None
    blame: Blame = Blame.UNKNOWN
    """Cause of the fault: the node, the application, or resources that the job has used up, such as memory or
    disk space; `unknown` until Rekindle has determined the cause."""
    blamed_node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """Node that caused the fault, if the blame is `node`."""
    evidence: Annotated[list[Evidence], Meta(max_length=16)] = []
    """Evidence on which the decisions rest."""
    suspects: Annotated[list[Suspect], Meta(max_length=8)] = []
    """Nodes that may have caused the fault."""
    victims: Annotated[list[GangRef], Meta(max_length=32)] = []
    """Jobs that the fault affects."""
    actions: Annotated[list[ActionRecord], Meta(max_length=24)] = []
    """Actions that Rekindle did, would do, or refused."""
    cordoned_at: Annotated[
        datetime | None,
        Meta(
            description="Time at which Rekindle put the node into quarantine, for the limits on "
            "quarantines within one hour."
        ),
    ] = None
    members: Annotated[
        list[Annotated[str, Meta(max_length=NAME_CHARS_MAX)]],
        Meta(
            description="For a fault on many nodes: the nodes on which Rekindle did not act.", max_length=4096
        ),
    ] = []
    superseded_by: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """Name of the Incident that now records the same fault."""
    known: Annotated[
        Answered | None,
        Meta(
            description="How far the node's kernel log was known when Rekindle last updated the open "
            "Incident. If a person ends the quarantine while no controller runs, findings of later records "
            "are new."
        ),
    ] = None
    closed_at: datetime | None = None
    """Time at which the Incident was closed."""
    answered: Annotated[
        Answered | None,
        Meta(
            description="How far the node's kernel log was known when the Incident was closed. Findings "
            "of later records are new."
        ),
    ] = None
    unanswered: Annotated[
        bool,
        Meta(
            description="True if Rekindle closed the Incident although the fault may still be present: the "
            "Node object was gone, another Incident is about the same fault, or no agent reported from "
            "the node's boot."
        ),
    ] = False
    repair: Annotated[Repair | None, Meta(description="The repair of the node, in mode repair.")] = None


class Incident(Wire, frozen=True, kw_only=True):
    """A fault of a node or a job: its evidence, its cause, and the actions that Rekindle did or refused."""

    api_version: str = API_VERSION
    kind: str = "Incident"
    metadata: ObjectMeta = ObjectMeta()
    spec: IncidentSpec
    status: IncidentStatus = IncidentStatus()

    @property
    def fault(self) -> Fault:
        """Most severe fault class that the evidence shows by now."""
        return self.status.fault or self.spec.fault
