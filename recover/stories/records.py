"""Typed records of the answers that `status` and `why` give to programs: the facts of their tables and
stories. Pure.

facts.py makes the records from API objects; overview.py tells those of `status` in words.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from detectors.text.answers import Answer, Record, Time
from detectors.wire.contract import GROUP, Coverage, Fault, Finding, Source
from detectors.wire.training import PodProgress
from recover.api import (
    Blame,
    Cause,
    CheckpointChoice,
    IncidentPhase,
    Outcome,
    Phase,
    PhaseTime,
)
from recover.api.repair_state import RepairPhase
from recover.policy.consent import OptIn
from recover.stories.absence import Absence
from recover.stories.hold_words import HoldRecord
from recover.stories.installation import InstallationRecord, PauseRecord
from recover.stories.words import Command

__all__ = [
    "BlindRecord",
    "DecisionRecord",
    "IncidentRecord",
    "JobRecord",
    "NodeRecord",
    "NodeState",
    "RecoveryDetail",
    "RecoveryRecord",
    "RepairRecord",
    "SignalRecord",
    "SpareRecord",
    "SpareState",
    "StatusAnswer",
    "WhyJobAnswer",
    "WhyNodeAnswer",
    "name_of",
]


class NodeState(StrEnum):
    """Unusual states of a Node; several may apply."""

    QUARANTINED = "quarantined"
    """Rekindle has quarantined the node. If the node is only degraded, it still takes pods."""
    CORDONED = "cordoned"
    """Somebody other than Rekindle has cordoned the node."""
    NOT_READY = "not-ready"
    GONE = "gone"
    """The cluster has no such Node object."""
    NOT_SHOWN = "not-shown"
    """The reader has no permission to read nodes."""


class SpareState(StrEnum):
    FREE = "free"
    LENT = "lent"
    """The spare replaces a node that is out of service."""
    TAKEN = "taken"
    """A person has removed the taint: pods may use the spare."""
    NOT_KEPT = "not-kept"
    """Rekindle does not keep the spare free yet."""
    UNUSABLE = "unusable"
    """Rekindle keeps the spare free, and the spare could not replace a node now."""


class JobRecord(Record, frozen=True, kw_only=True):
    api_version: str
    kind: str
    namespace: str
    name: str


class SignalRecord(Record, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="label, condition or taint")]
    by: Annotated[str, Meta(description="the controller that writes the signal")]


class NodeRecord(Record, frozen=True, kw_only=True):
    name: str
    accelerated: Annotated[bool | None, Meta(description="null: no Node object was read")]
    states: list[NodeState]
    quarantined_at: Time | None
    not_ready_since: Time | None
    incident: Annotated[str, Meta(description="the Incident for which the node is in quarantine, or empty")]
    incident_missing: Annotated[
        bool, Meta(description="true if somebody has deleted the Incident of the quarantine")
    ]
    findings: Annotated[list[str], Meta(description="codes of the open findings, each code once")]
    signals: Annotated[
        list[SignalRecord], Meta(description="signals by which other controllers suspect the node")
    ]
    driver_work: Annotated[
        str,
        Meta(description="the work of another controller on the node's driver; empty if there is none"),
    ]


class IncidentRecord(Record, frozen=True, kw_only=True):
    name: str
    phase: IncidentPhase
    fault: Fault
    node: Annotated[str, Meta(description="the node of the fault; empty for a fault of a job")]
    job: Annotated[JobRecord | None, Meta(description="the job of the fault; null for a fault of a node")]
    blame: Blame
    blamed_node: str
    detected_at: Time
    closed_at: Time | None
    summary: str


class DecisionRecord(Record, frozen=True, kw_only=True):
    """One action that was taken, would be taken, or was refused."""

    incident: str
    action: Annotated[str, Meta(description="quarantine-node, restart-gang, ...")]
    target: str
    outcome: Outcome
    reason: Annotated[
        str, Meta(description="a code of docs/reference/reasons.md; empty for an action that was taken")
    ]
    at: Time
    message: str


class RecoveryRecord(Record, frozen=True, kw_only=True):
    name: str
    job: JobRecord
    number: Annotated[int, Meta(description="number of this recovery among the recoveries of the job")]
    active: bool
    phase: Phase
    attempt: int
    reason: Annotated[str, Meta(description="a code of docs/reference/reasons.md, or empty")]
    message: str
    detected_at: Time
    since: Annotated[Time, Meta(description="when the present phase began")]
    fault: Fault
    error: Annotated[str, Meta(description="how the job failed, such as exit-1 or deleted; or empty")]
    nodes: Annotated[list[str], Meta(description="the culprit, or the suspects")]
    resumed_step: int | None
    lost_steps: int | None
    lost_gpu_s: Annotated[float | None, Meta(description="GPU-seconds without progress")]
    job_completed: Annotated[
        bool | None, Meta(description="whether the job has completed; null: the job could not be read")
    ]


class RecoveryDetail(RecoveryRecord, frozen=True, kw_only=True):
    """A Recovery with the further facts that `rekindle why` shows."""

    phases: list[PhaseTime]
    causes: list[Cause]
    checkpoint: CheckpointChoice | None
    last_step: int | None
    avoid_nodes: list[str]
    suspects: list[str]


class RepairRecord(Record, frozen=True, kw_only=True):
    node: str
    incident: str
    phase: RepairPhase
    since: Time
    reason: str
    message: str


class SpareRecord(Record, frozen=True, kw_only=True):
    node: str
    pool: str
    state: SpareState
    since: Time | None
    instead_of: Annotated[str, Meta(description="the quarantined node that the spare replaces, or empty")]
    incident: str
    trouble: Annotated[str, Meta(description="why the spare cannot replace a node now, or empty")]


class BlindRecord(Record, frozen=True, kw_only=True):
    """A source that Rekindle cannot read, for all nodes with the same reason."""

    source: Annotated[Source | None, Meta(description="null: Rekindle reads no source of the nodes")]
    nodes: list[str]
    why: str


class StatusAnswer(Answer, frozen=True, kw_only=True, tag="Status"):
    """The answer of `rekindle status`."""

    at: Time
    namespace: Annotated[
        str, Meta(description="the namespace of the listed recoveries; empty for all namespaces")
    ]
    hidden: Annotated[
        list[str], Meta(description="plural names of the kinds that you have no permission to read")
    ]
    installation: InstallationRecord | None
    accelerator_nodes: Annotated[int | None, Meta(description="null: you have no permission to read nodes")]
    quarantined_nodes: int | None
    nodes: Annotated[list[NodeRecord], Meta(description="nodes that are not in their normal state")]
    recoveries: Annotated[
        list[RecoveryRecord], Meta(description="recoveries that are active, or ended within the last day")
    ]
    repairs: list[RepairRecord]
    incidents: Annotated[list[IncidentRecord], Meta(description="open Incidents, newest first")]
    not_done: Annotated[
        list[DecisionRecord], Meta(description="actions that were refused, or only reported in mode observe")
    ]
    holds: Annotated[
        list[HoldRecord],
        Meta(description="holds on nodes, on namespaces, and on jobs that have not completed"),
    ]
    spares: list[SpareRecord]
    blind: list[BlindRecord]
    commands: Annotated[list[Command], Meta(description="commands that are useful next")]

    def names(self) -> tuple[str, ...]:
        return (
            *(f"node/{one.name}" for one in self.nodes),
            *(f"recovery.{GROUP}/{one.name}" for one in self.recoveries),
            *(f"incident.{GROUP}/{one.name}" for one in self.incidents),
        )


class WhyJobAnswer(Answer, frozen=True, kw_only=True, tag="WhyJob"):
    """The answer of `rekindle why JOB`."""

    at: Time
    hidden: Annotated[
        list[str], Meta(description="plural names of the kinds that you have no permission to read")
    ]
    job: JobRecord
    absence: Annotated[Absence | None, Meta(description="why the job is not shown; null: the job is shown")]
    consent: Annotated[
        OptIn | None,
        Meta(
            description="null: only the namespace may set the consent, and you have no permission to "
            "read the namespace"
        ),
    ]
    pause: Annotated[
        PauseRecord | None,
        Meta(description="null: Rekindle is not paused, or you have no permission to read the pause"),
    ]
    holds: Annotated[list[HoldRecord], Meta(description="holds of people that are in force")]
    headline: Annotated[str, Meta(description="the state in one sentence, for people")]
    incidents: Annotated[list[IncidentRecord], Meta(description="newest first")]
    decisions: list[DecisionRecord]
    recoveries: Annotated[list[RecoveryDetail], Meta(description="newest first")]
    next_steps: Annotated[list[str], Meta(description="steps for a person, in sentences")]
    commands: Annotated[list[Command], Meta(description="commands that are useful next")]

    def names(self) -> tuple[str, ...]:
        return (
            name_of(self.job),
            *(f"recovery.{GROUP}/{one.name}" for one in self.recoveries),
            *(f"incident.{GROUP}/{one.name}" for one in self.incidents),
        )


class WhyNodeAnswer(Answer, frozen=True, kw_only=True, tag="WhyNode"):
    """The answer of `rekindle why node/NODE`."""

    at: Time
    hidden: Annotated[
        list[str], Meta(description="plural names of the kinds that you have no permission to read")
    ]
    node: NodeRecord
    pause: Annotated[
        PauseRecord | None,
        Meta(description="null: Rekindle is not paused, or you have no permission to read the pause"),
    ]
    holds: Annotated[list[HoldRecord], Meta(description="holds of people that are in force")]
    headline: Annotated[str, Meta(description="the state in one sentence, for people")]
    findings: Annotated[
        list[Finding], Meta(description="all findings of the agent, cleared findings included")
    ]
    coverage: Annotated[list[Coverage], Meta(description="the sources of the agent")]
    pods: Annotated[list[PodProgress], Meta(description="trainings on the node")]
    incidents: Annotated[list[IncidentRecord], Meta(description="newest first")]
    decisions: list[DecisionRecord]
    next_steps: Annotated[list[str], Meta(description="steps for a person, in sentences")]
    commands: Annotated[list[Command], Meta(description="commands that are useful next")]

    def names(self) -> tuple[str, ...]:
        return (f"node/{self.node.name}", *(f"incident.{GROUP}/{one.name}" for one in self.incidents))


def name_of(job: JobRecord) -> str:
    """Returns the name of a job as `kubectl -o name` prints it."""
    group = job.api_version.partition("/")[0] if "/" in job.api_version else ""
    return f"{job.kind.lower()}{'.' if group else ''}{group}/{job.name}"
