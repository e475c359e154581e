"""Recovery: the record of one restart of one gang, step by step."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from detectors.wire.base import EVIDENCE_BYTES_MAX
from detectors.wire.contract import API_VERSION, Fault, ObjectMeta
from detectors.wire.fitting import NEWEST, WHOLE
from detectors.wire.training import Pace
from recover.api.shared import Blame, Condition, GangRef, Toleration, Wire
from recover.k8s.limits import NAME_CHARS_MAX

__all__ = [
    "ACTIVE_PHASES",
    "DEFINITION_CHARS_MAX",
    "STOPPED_PHASES",
    "Cause",
    "CheckpointChoice",
    "FailedLog",
    "Phase",
    "PhaseTime",
    "RecipeOutcome",
    "RecipeUse",
    "Recovery",
    "RecoverySpec",
    "RecoveryStatus",
    "Recreation",
    "RejectedCheckpoint",
    "Requirement",
    "Totals",
    "Witness",
]


class Phase(StrEnum):
    """Phase of a recovery. Blocked is active: Rekindle plans the recovery again when something changes."""

    PLANNED = "Planned"
    STOPPING = "Stopping"
    FENCING = "Fencing"
    CHOOSING = "Choosing"
    RESUMING = "Resuming"
    VERIFYING = "Verifying"
    SUCCEEDED = "Succeeded"
    ESCALATED = "Escalated"
    FAILED = "Failed"
    BLOCKED = "Blocked"


DEFINITION_CHARS_MAX = 262_144
"""Largest definition of a job that Rekindle creates again. A larger definition would not fit into etcd
together with the rest of its Recovery."""

ACTIVE_PHASES = frozenset(Phase) - {Phase.SUCCEEDED, Phase.ESCALATED, Phase.FAILED}
STOPPED_PHASES = frozenset({Phase.PLANNED, Phase.STOPPING, Phase.FENCING, Phase.CHOOSING})
"""Phases from the decision to the resume, in which the gang's own pods give no new information."""


class Cause(Wire, frozen=True, kw_only=True):
    """One fault for which the job is restarted."""

    incident: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Name of the Incident."""
    fault: Fault
    """Fault class of the cause."""
    attempt: Annotated[int, Meta(description="The attempt that this cause started or joined.", ge=1)]
    at: datetime
    """Time at which triage decided to restart the job for this cause."""
    node: Annotated[
        str, Meta(description="The culprit, or a suspect, if any.", max_length=NAME_CHARS_MAX)
    ] = ""
    summary: Annotated[str, Meta(max_length=512)] = ""
    """The cause in one sentence."""
    finding: Annotated[
        str,
        Meta(description="Id of the node's worst finding; empty if the job itself failed.", max_length=63),
    ] = ""
    blame: Annotated[
        Blame,
        Meta(
            description="The culprit, as known when Rekindle opened the Recovery: node, application, or "
            "resources (a limit of the job, for example its memory)."
        ),
    ] = Blame.UNKNOWN
    error: Annotated[
        str,
        Meta(
            description="If the job failed by itself: the code of its first error or, if no error was read, "
            "its exit status, for example exit-1.",
            max_length=63,
        ),
    ] = ""

    def covers(self, incident: str, finding: str) -> bool:
        """Whether this cause already stands for that fault. A finding that is worse than the earlier one is
        another cause. Rekindle before 0.2 recorded no findings: a cause without a finding stands for all of
        its Incident."""
        return self.incident == incident and self.finding in ("", finding)


class PhaseTime(Wire, frozen=True, kw_only=True):
    """Time at which one phase of the recovery began."""

    phase: Phase
    """The phase that began."""
    attempt: Annotated[int, Meta(ge=1)]
    """The attempt to which the phase belongs."""
    at: datetime
    """Time at which the phase began."""
    step: Annotated[
        int | None, Meta(description="For Resuming: step of the checkpoint from which the attempt begins.")
    ] = None


class RejectedCheckpoint(Wire, frozen=True, kw_only=True):
    """A checkpoint that is not used."""

    step: int
    """Step of the checkpoint."""
    path: Annotated[str, Meta(max_length=512)]
    """Path of the checkpoint in the job's containers."""
    reason: Annotated[str, Meta(max_length=256)]
    """Why the checkpoint is not used."""


class CheckpointChoice(Wire, frozen=True, kw_only=True):
    """The newest complete checkpoint, or the reason why the framework's own logic decides."""

    attempt: Annotated[int, Meta(ge=1)]
    """The attempt for which the checkpoint was chosen."""
    verified: Annotated[
        bool,
        Meta(
            description="True if the scan verified the checkpoint; false if the framework's own logic "
            "decides."
        ),
    ]
    step: int | None = None
    """Step of the checkpoint."""
    path: Annotated[
        str, Meta(description="Path of the checkpoint in the job's containers.", max_length=512)
    ] = ""
    format: Annotated[str, Meta(max_length=63)] = ""
    """Format of the checkpoint; docs/checkpoints.md lists the formats."""
    reason: Annotated[
        str,
        Meta(
            description="Why no checkpoint is verified, or which part of the verified checkpoint was not "
            "read.",
            max_length=512,
        ),
    ] = ""
    rejected: Annotated[list[RejectedCheckpoint], Meta(max_length=8)] = []
    """Checkpoints that are not used, each with the reason."""
    scan_s: Annotated[
        float | None, Meta(description="Seconds from the end of the old pods to the result of the scan.")
    ] = None
    idle_gpu_s: Annotated[
        float | None,
        Meta(
            description="GPU-seconds that were idle during the scan: `scanS`, multiplied by the number "
            "of the job's GPUs."
        ),
    ] = None
    excluded: Annotated[
        list[int],
        Meta(
            description="Steps of checkpoints that are not used because they failed to load.", max_length=16
        ),
    ] = []
    repaired: Annotated[
        list[Annotated[str, Meta(max_length=256)]],
        Meta(
            description="Changes in the folder of the checkpoints that the scan made, or could not make.",
            max_length=16,
        ),
    ] = []
    digests: Annotated[
        str,
        Meta(
            description="Digests with which the bytes were compared, if the job asks for that.",
            max_length=256,
        ),
    ] = ""
    tracker: Annotated[
        str,
        Meta(
            description="Note that the framework's own tracker file names another checkpoint.", max_length=256
        ),
    ] = ""
    unfound: Annotated[
        str,
        Meta(
            description="Note that the job's log shows a later checkpoint than the scan has found.",
            max_length=512,
        ),
    ] = ""


class Witness(Wire, frozen=True, kw_only=True):
    """A rank that was lost first, or whose steps were readable before the stop. A job has at most 8."""

    pod: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Name of the pod."""
    uid: Annotated[str, Meta(max_length=64)]
    """UID of the pod."""
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Node on which the pod ran."""


class FailedLog(Wire, frozen=True, kw_only=True):
    """End of a failed rank's log, which the Recovery keeps because the pod is deleted."""

    pod: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Name of the failed pod."""
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """Node on which the pod ran."""
    first_error: Annotated[
        str,
        Meta(
            description="The line that says why the rank failed, as the agent read it.",
            max_length=EVIDENCE_BYTES_MAX,
        ),
    ] = ""
    tail: Annotated[str, Meta(max_length=2048)] = ""
    """Last lines of the log."""


class Totals(Wire, frozen=True, kw_only=True):
    """Running totals of the job, this recovery included."""

    recoveries: int = 0
    """Number of recoveries."""
    lost_steps: int = 0
    """Number of training steps that had to be repeated."""
    lost_gpu_s: Annotated[float, Meta(description="GPU-seconds without new progress.")] = 0.0


class RecipeOutcome(StrEnum):
    """Result of a matching recipe."""

    APPLIED = "applied"
    HELD = "held"
    ADVISED = "advised"
    GAVE_UP = "gave-up"


class Requirement(Wire, frozen=True, kw_only=True):
    """A requirement on the labels of a node, as in a node affinity."""

    key: Annotated[str, Meta(description="Label of the node.", max_length=316)]
    operator: Annotated[str, Meta(pattern="^(In|NotIn|Exists|DoesNotExist|Gt|Lt)$")]
    """Operator of the node affinity."""
    values: Annotated[list[Annotated[str, Meta(max_length=63)]], Meta(max_length=16)] = []
    """Values with which the operator compares the label."""


class RecipeUse(Wire, frozen=True, kw_only=True):
    """A known issue that Rekindle recognised, and what Rekindle did about the issue."""

    name: Annotated[str, Meta(description="Name of the recipe.", max_length=63)]
    attempt: Annotated[int, Meta(description="The attempt that the recipe changed.", ge=1)]
    outcome: RecipeOutcome
    """`applied` if Rekindle changed the next start, `held` if Rekindle does not start the job again,
    `advised` if only the owner can change something, `gave-up` if the change did not help."""
    seen: Annotated[
        str,
        Meta(
            description="The log line, or the fact (such as a driver version of the node), by which "
            "Rekindle recognised the issue.",
            max_length=512,
        ),
    ] = ""
    env: Annotated[
        dict[str, Annotated[str, Meta(max_length=1024)]],
        Meta(description="Variables for the new containers.", max_length=32),
    ] = {}
    placed: Annotated[
        list[Requirement], Meta(description="Labels that the job's nodes must have.", max_length=16)
    ] = []
    message: Annotated[
        str, Meta(description="The change, or the reason why Rekindle changed nothing.", max_length=512)
    ] = ""
    advice: Annotated[
        str, Meta(description="The change that the owner of the job should make.", max_length=2048)
    ] = ""


class RecoverySpec(Wire, frozen=True, kw_only=True):
    """The job and the faults for which it is restarted. Nothing in the spec changes, but triage appends to
    `causes`."""

    gang: GangRef
    """The job that is recovered."""
    number: Annotated[int, Meta(description="Number of this recovery among those of the job, from 1.", ge=1)]
    incident: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Name of the Incident for which the recovery was opened."""
    fault: Fault
    """Fault class of the first cause."""
    detected_at: datetime
    """Time of the first evidence."""
    summary: Annotated[str, Meta(description="The first cause in one sentence.", max_length=512)] = ""
    avoid_node: Annotated[
        str, Meta(description="The culprit, or a suspect, if any.", max_length=NAME_CHARS_MAX)
    ] = ""
    nodes: Annotated[list[str], Meta(description="Nodes on which the ranks ran.", max_length=4096)] = []
    nodes_without_devices: Annotated[
        list[str],
        Meta(
            description="The entries of `nodes` on which, as far as Rekindle knows, no rank used an "
            "accelerator. No spare takes the place of these nodes.",
            max_length=4096,
        ),
    ] = []
    gpus: Annotated[int, Meta(description="Number of accelerators that the job holds.", ge=0)] = 0
    witnesses: Annotated[list[Witness], Meta(max_length=8)] = []
    """Ranks that were lost first, or whose steps were readable before the stop."""
    pace: Pace | None = None
    """How long the ranks were silent before the stop. Absent if no agent has reported a long pause."""
    causes: Annotated[
        list[Cause],
        Meta(description="Every fault for which triage has decided to restart this job.", max_length=64),
    ] = []
    priority: Annotated[
        int | None,
        Meta(
            description="Priority of the ranks' pods. Pods of lower priority make room for them. The lowest "
            "priority, -2147483648, if the ranks' pods have the preemptionPolicy Never."
        ),
    ] = None
    tolerations: Annotated[
        list[Toleration],
        Meta(
            description="Tolerations of the ranks' pods, beyond those of the job's templates.", max_length=32
        ),
    ] = []


class Recreation(Wire, frozen=True, kw_only=True):
    """Set if the job is deleted and created again, because its framework would not start all ranks again."""

    attempt: Annotated[int, Meta(ge=1)]
    """The attempt in which the job is deleted and created again."""
    why: Annotated[str, Meta(max_length=512)]
    """Why the framework's controller would not start the whole job again."""
    definition: Annotated[
        str,
        Meta(
            description="Definition, in JSON, from which Rekindle creates the job again; empty after the "
            "creation.",
            max_length=DEFINITION_CHARS_MAX,
            extra=WHOLE,
        ),
    ] = ""


class RecoveryStatus(Wire, frozen=True, kw_only=True):
    """Progress and result of the recovery. Only the controller writes the status."""

    phase: Phase = Phase.PLANNED
    """Phase of the recovery. Succeeded, Escalated and Failed are final."""
    attempt: Annotated[int, Meta(ge=1)] = 1
    """Number of the present attempt, from 1."""
    reason: Annotated[
        str,
        Meta(
            description="Stable reason in CamelCase; docs/reference/reasons.md explains each one.",
            max_length=63,
        ),
    ] = ""
    message: Annotated[str, Meta(description="The present state, in plain words.", max_length=1024)] = ""
    causes: Annotated[list[Cause], Meta(max_length=64)] = []
    """Causes that the recovery has taken up."""
    nodes: Annotated[
        list[str],
        Meta(description="Nodes of the ranks that a later attempt has stopped.", max_length=4096),
    ] = []
    nodes_without_devices: Annotated[
        list[str],
        Meta(
            description="The entries of `nodes` on which, as far as Rekindle knows, no rank used an "
            "accelerator.",
            max_length=4096,
        ),
    ] = []
    witnesses: Annotated[
        list[Witness],
        Meta(
            description="Ranks that a later attempt has stopped, and that were lost first, or whose steps "
            "were readable before that stop.",
            max_length=8,
        ),
    ] = []
    avoid_nodes: Annotated[
        list[str], Meta(description="Broken nodes that the job must not use now.", max_length=256)
    ] = []
    suspects: Annotated[
        list[str],
        Meta(description="Nodes that are only suspected. The job prefers other nodes.", max_length=64),
    ] = []
    uncounted: Annotated[
        list[int],
        Meta(
            description="Attempts that no limit includes: not all ranks ran at the same time, or Rekindle "
            "placed the ranks again.",
            max_length=128,
            extra=NEWEST,
        ),
    ] = []
    phases: Annotated[list[PhaseTime], Meta(max_length=64, extra=NEWEST)] = []
    """Time at which each phase began, oldest first."""
    deadline: Annotated[
        datetime | None, Meta(description="End of the time that the present phase may take.")
    ] = None
    checkpoint: CheckpointChoice | None = None
    """The checkpoint from which the job resumes."""
    fruitless: Annotated[
        list[int],
        Meta(
            description="Steps of the checkpoints from which attempts began that made no progress.",
            max_length=16,
            extra=NEWEST,
        ),
    ] = []
    priority: Annotated[
        int | None,
        Meta(
            description="Priority of the ranks' pods. Pods of lower priority make room for them. The lowest "
            "priority, -2147483648, if the ranks' pods have the preemptionPolicy Never."
        ),
    ] = None
    tolerations: Annotated[
        list[Toleration],
        Meta(
            description="Tolerations of the ranks' pods, beyond those of the job's templates.", max_length=32
        ),
    ] = []
    leftovers: Annotated[
        list[Annotated[str, Meta(max_length=8)]],
        Meta(
            description="First 8 characters of the UIDs of ended pods that the job kept at the resume.",
            max_length=4096,
        ),
    ] = []
    last_step: Annotated[int | None, Meta(description="Last step that an agent read before the stop.")] = None
    resumed_step: Annotated[
        int | None, Meta(description="First step that an agent read after the resume.")
    ] = None
    lost_steps: int | None = None
    """Number of training steps that had to be repeated."""
    lost_gpu_s: float | None = None
    """GPU-seconds without new progress."""
    totals: Totals | None = None
    """Running totals of the job, this recovery included."""
    failed_log: FailedLog | None = None
    """End of the failed rank's log."""
    recreation: Recreation | None = None
    """Set if the job is deleted and created again."""
    recipes: Annotated[
        list[RecipeUse],
        Meta(description="Known issues that were recognised, newest last.", max_length=8, extra=NEWEST),
    ] = []
    gang_uid: Annotated[
        str,
        Meta(description="UID of the job that was created again in place of the first one.", max_length=64),
    ] = ""
    conditions: Annotated[list[Condition], Meta(max_length=16)] = []
    """Standard conditions of the recovery."""


class Recovery(Wire, frozen=True, kw_only=True):
    """One recovery of one job: its phases, its checkpoint and its result."""

    api_version: str = API_VERSION
    kind: str = "Recovery"
    metadata: ObjectMeta = ObjectMeta()
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()

    @property
    def active(self) -> bool:
        return self.status.phase in ACTIVE_PHASES

    @property
    def cause_names(self) -> set[str]:
        """Names of the Incidents for which the recovery was opened, or that it has taken up."""
        causes = (*self.spec.causes, *self.status.causes)
        return {self.spec.incident, *(cause.incident for cause in causes)}

    def has_cause(self, incident: str, finding: str) -> bool:
        """Whether the recovery was opened for that fault, or triage has added the fault to its causes."""
        causes = (*self.spec.causes, *self.status.causes)
        if not causes:  # just opened, by a version that recorded no causes here
            return self.spec.incident == incident
        return any(cause.covers(incident, finding) for cause in causes)

    @property
    def nodes(self) -> list[str]:
        """Nodes of the ranks that this attempt has stopped."""
        return self.status.nodes or self.spec.nodes

    @property
    def nodes_with_devices(self) -> list[str]:
        """The entries of `nodes` on which a rank used accelerators. An earlier version did not record this,
        so all nodes of its recoveries count."""
        told = self.status if self.status.nodes else self.spec
        without = frozenset(told.nodes_without_devices)
        return [name for name in told.nodes if name not in without]

    @property
    def witnesses(self) -> list[Witness]:
        """Witnesses among the ranks that this attempt has stopped; the rank that was lost first comes first.
        A later attempt may have none: the witnesses of the first attempt are not valid for it."""
        return self.status.witnesses if self.status.attempt > 1 else self.spec.witnesses

    @property
    def gang_uid(self) -> str:
        """UID of the job as it is now: a job that was created again has another UID."""
        return self.status.gang_uid or self.spec.gang.uid
