"""What `status` and `why` answer to programs: the facts of their tables and stories, as typed records. Pure.

facts.py makes them from API objects; overview.py tells those of `status` in words.
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
    """What is unusual about a Node; several may apply."""

    QUARANTINED = "quarantined"
    """Rekindle has taken the node out of service."""
    CORDONED = "cordoned"
    """Somebody else has cordoned it."""
    NOT_READY = "not-ready"
    GONE = "gone"
    """There is no such Node object."""
    NOT_SHOWN = "not-shown"
    """Whoever asks may not read nodes."""


class SpareState(StrEnum):
    FREE = "free"
    LENT = "lent"
    """It stands in for a node that is out."""
    TAKEN = "taken"
    """A person has taken the taint off: pods may use it."""
    NOT_KEPT = "not-kept"
    """It is not kept free yet."""
    UNUSABLE = "unusable"
    """It is kept free, and would not be let in now."""


class JobRecord(Record, frozen=True, kw_only=True):
    api_version: str
    kind: str
    namespace: str
    name: str


class SignalRecord(Record, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="label, condition or taint")]
    by: Annotated[str, Meta(description="the controller that writes it")]


class NodeRecord(Record, frozen=True, kw_only=True):
    name: str
    accelerated: Annotated[bool | None, Meta(description="null where no Node object is read")]
    states: list[NodeState]
    quarantined_at: Time | None
    not_ready_since: Time | None
    incident: Annotated[str, Meta(description="the Incident for which it is out; empty where it is not")]
    incident_missing: Annotated[bool, Meta(description="somebody has deleted that Incident")]
    findings: Annotated[list[str], Meta(description="codes of the open findings, each once")]
    signals: Annotated[list[SignalRecord], Meta(description="what other controllers suspect")]
    driver_work: Annotated[str, Meta(description="work on its driver that is under way")]


class IncidentRecord(Record, frozen=True, kw_only=True):
    name: str
    phase: IncidentPhase
    fault: Fault
    node: Annotated[str, Meta(description="the node it is about; empty where it is about a job")]
    job: Annotated[JobRecord | None, Meta(description="the job it is about, if any")]
    blame: Blame
    blamed_node: str
    detected_at: Time
    closed_at: Time | None
    summary: str


class DecisionRecord(Record, frozen=True, kw_only=True):
    """One thing that was done, would be done, or was refused."""

    incident: str
    action: Annotated[str, Meta(description="quarantine-node, restart-gang, ...")]
    target: str
    outcome: Outcome
    reason: Annotated[str, Meta(description="a code of docs/reference/reasons.md; empty for what was done")]
    at: Time
    message: str


class RecoveryRecord(Record, frozen=True, kw_only=True):
    name: str
    job: JobRecord
    number: Annotated[int, Meta(description="the job's n-th recovery")]
    active: bool
    phase: Phase
    attempt: int
    reason: Annotated[str, Meta(description="a code of docs/reference/reasons.md, or empty")]
    message: str
    detected_at: Time
    since: Annotated[Time, Meta(description="when the present phase began")]
    fault: Fault
    error: Annotated[str, Meta(description="how the job itself failed, such as exit-1 or deleted; or empty")]
    nodes: Annotated[list[str], Meta(description="nodes that are blamed or suspected for it")]
    resumed_step: int | None
    lost_steps: int | None
    lost_gpu_s: Annotated[float | None, Meta(description="GPU-seconds without progress")]


class RecoveryDetail(RecoveryRecord, frozen=True, kw_only=True):
    """With what `rekindle why` tells of it besides."""

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
    instead_of: Annotated[str, Meta(description="the node in whose place it takes pods")]
    incident: str
    trouble: Annotated[str, Meta(description="why it would not be let in")]


class BlindRecord(Record, frozen=True, kw_only=True):
    """What Rekindle cannot see, of all nodes with the same reason."""

    source: Annotated[Source | None, Meta(description="null: everything on these nodes")]
    nodes: list[str]
    why: str


class StatusAnswer(Answer, frozen=True, kw_only=True, tag="Status"):
    """Of `rekindle status`."""

    at: Time
    namespace: Annotated[str, Meta(description="only recoveries of it are listed; empty: of all")]
    hidden: Annotated[list[str], Meta(description="kinds that whoever asks may not read, by their plural")]
    installation: InstallationRecord | None
    accelerator_nodes: Annotated[int | None, Meta(description="null where nodes may not be read")]
    quarantined_nodes: int | None
    nodes: Annotated[list[NodeRecord], Meta(description="nodes that are unusual in any way")]
    recoveries: Annotated[list[RecoveryRecord], Meta(description="active, or ended within a day")]
    repairs: list[RepairRecord]
    incidents: Annotated[list[IncidentRecord], Meta(description="open ones, newest first")]
    not_done: Annotated[list[DecisionRecord], Meta(description="refused, or only told in mode observe")]
    spares: list[SpareRecord]
    blind: list[BlindRecord]
    commands: Annotated[list[Command], Meta(description="useful next")]

    def names(self) -> tuple[str, ...]:
        return (
            *(f"node/{one.name}" for one in self.nodes),
            *(f"recovery.{GROUP}/{one.name}" for one in self.recoveries),
            *(f"incident.{GROUP}/{one.name}" for one in self.incidents),
        )


class WhyJobAnswer(Answer, frozen=True, kw_only=True, tag="WhyJob"):
    """Of `rekindle why JOB`."""

    at: Time
    hidden: Annotated[list[str], Meta(description="kinds that whoever asks may not read, by their plural")]
    job: JobRecord
    absence: Annotated[Absence | None, Meta(description="why the job itself is not shown; null: it is")]
    consent: Annotated[
        OptIn | None, Meta(description="null if only its namespace tells, and that may not be read")
    ]
    pause: Annotated[PauseRecord | None, Meta(description="null: not paused, or it may not be read")]
    headline: Annotated[str, Meta(description="the state in one sentence, for people")]
    incidents: Annotated[list[IncidentRecord], Meta(description="newest first")]
    decisions: list[DecisionRecord]
    recoveries: Annotated[list[RecoveryDetail], Meta(description="newest first")]
    next_steps: Annotated[list[str], Meta(description="what a person can do, for people")]
    commands: Annotated[list[Command], Meta(description="useful next")]

    def names(self) -> tuple[str, ...]:
        return (
            name_of(self.job),
            *(f"recovery.{GROUP}/{one.name}" for one in self.recoveries),
            *(f"incident.{GROUP}/{one.name}" for one in self.incidents),
        )


class WhyNodeAnswer(Answer, frozen=True, kw_only=True, tag="WhyNode"):
    """Of `rekindle why node/NODE`."""

    at: Time
    hidden: Annotated[list[str], Meta(description="kinds that whoever asks may not read, by their plural")]
    node: NodeRecord
    pause: Annotated[PauseRecord | None, Meta(description="null: not paused, or it may not be read")]
    headline: Annotated[str, Meta(description="the state in one sentence, for people")]
    findings: Annotated[list[Finding], Meta(description="all that its agent keeps, cleared ones, too")]
    coverage: Annotated[list[Coverage], Meta(description="what its agent can read")]
    pods: Annotated[list[PodProgress], Meta(description="training on it")]
    incidents: Annotated[list[IncidentRecord], Meta(description="newest first")]
    decisions: list[DecisionRecord]
    next_steps: Annotated[list[str], Meta(description="what a person can do, for people")]
    commands: Annotated[list[Command], Meta(description="useful next")]

    def names(self) -> tuple[str, ...]:
        return (f"node/{self.node.name}", *(f"incident.{GROUP}/{one.name}" for one in self.incidents))


def name_of(job: JobRecord) -> str:
    """As `kubectl -o name` has it."""
    group = job.api_version.partition("/")[0] if "/" in job.api_version else ""
    return f"{job.kind.lower()}{'.' if group else ''}{group}/{job.name}"
