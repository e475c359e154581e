"""Recovery: what was done to one gang, step by step."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from detectors.wire.base import EVIDENCE_BYTES_MAX
from detectors.wire.contract import API_VERSION, Fault, ObjectMeta
from detectors.wire.fitting import NEWEST, WHOLE
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
    """Where a recovery stands. Blocked is active: it is planned again when something changes."""

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
"""A larger job is not made anew: it would not fit beside the rest of its Recovery in etcd."""

ACTIVE_PHASES = frozenset(Phase) - {Phase.SUCCEEDED, Phase.ESCALATED, Phase.FAILED}
STOPPED_PHASES = frozenset({Phase.PLANNED, Phase.STOPPING, Phase.FENCING, Phase.CHOOSING})
"""From the decision to the resume: the gang's own pods say nothing new."""


class Cause(Wire, frozen=True, kw_only=True):
    incident: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    fault: Fault
    attempt: Annotated[int, Meta(description="the attempt that it started or joined", ge=1)]
    at: datetime
    node: Annotated[
        str, Meta(description="the blamed or suspected node, if any", max_length=NAME_CHARS_MAX)
    ] = ""
    summary: Annotated[str, Meta(max_length=512)] = ""
    finding: Annotated[
        str,
        Meta(description="id of the node's worst finding; empty for a gang's own failure", max_length=63),
    ] = ""
    blame: Annotated[Blame, Meta(description="who was to blame when triage decided")] = Blame.UNKNOWN
    error: Annotated[
        str,
        Meta(description="first error of a gang's own failure: its code, or exit-1", max_length=63),
    ] = ""

    def covers(self, incident: str, finding: str) -> bool:
        """This cause already stands for that fault. A finding that is worse than the one before it is another
        cause. Rekindle before 0.2 kept no findings: such a cause stands for all of its Incident."""
        return self.incident == incident and self.finding in ("", finding)


class PhaseTime(Wire, frozen=True, kw_only=True):
    phase: Phase
    attempt: Annotated[int, Meta(ge=1)]
    at: datetime
    step: Annotated[
        int | None, Meta(description="of Resuming: step of the checkpoint from which the attempt begins")
    ] = None


class RejectedCheckpoint(Wire, frozen=True, kw_only=True):
    step: int
    path: Annotated[str, Meta(max_length=512)]
    reason: Annotated[str, Meta(max_length=256)]


class CheckpointChoice(Wire, frozen=True, kw_only=True):
    """The newest complete checkpoint, or why the framework's own logic decides."""

    attempt: Annotated[int, Meta(ge=1)]
    verified: Annotated[bool, Meta(description="false: the framework's own logic decides")]
    step: int | None = None
    path: Annotated[str, Meta(description="path in the gang's containers", max_length=512)] = ""
    format: Annotated[str, Meta(max_length=63)] = ""
    reason: Annotated[
        str,
        Meta(description="why none is verified, or what of the verified one was not read", max_length=512),
    ] = ""
    rejected: Annotated[list[RejectedCheckpoint], Meta(max_length=8)] = []
    scan_s: Annotated[
        float | None, Meta(description="seconds from the end of the old pods to the scan's result")
    ] = None
    idle_gpu_s: Annotated[
        float | None, Meta(description="GPU-seconds that stood free meanwhile: scanS times the gang's GPUs")
    ] = None
    excluded: Annotated[
        list[int], Meta(description="steps that were passed over since they failed to load", max_length=16)
    ] = []
    repaired: Annotated[
        list[Annotated[str, Meta(max_length=256)]],
        Meta(description="what was changed beside the checkpoints, or could not be", max_length=16),
    ] = []
    digests: Annotated[
        str, Meta(description="what its bytes were compared with, where that was asked for", max_length=256)
    ] = ""
    tracker: Annotated[
        str, Meta(description="that the framework's own tracker names another checkpoint", max_length=256)
    ] = ""
    unfound: Annotated[
        str,
        Meta(
            description="that the job's log tells of a later checkpoint than the scan has found",
            max_length=512,
        ),
    ] = ""


class Witness(Wire, frozen=True, kw_only=True):
    """A rank that was lost first, or whose steps were readable before the stop; at most 8 stand for the
    gang."""

    pod: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    uid: Annotated[str, Meta(max_length=64)]
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]


class FailedLog(Wire, frozen=True, kw_only=True):
    """The end of a failed rank's log, kept because its pod is gone."""

    pod: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    node: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    first_error: Annotated[
        str, Meta(description="the line that says why, as the agent read it", max_length=EVIDENCE_BYTES_MAX)
    ] = ""
    tail: Annotated[str, Meta(max_length=2048)] = ""


class Totals(Wire, frozen=True, kw_only=True):
    """Running totals of the job, this recovery included."""

    recoveries: int = 0
    lost_steps: int = 0
    lost_gpu_s: Annotated[float, Meta(description="GPU-seconds without new progress")] = 0.0


class RecipeOutcome(StrEnum):
    """What a matching recipe led to."""

    APPLIED = "applied"
    HELD = "held"
    ADVISED = "advised"
    GAVE_UP = "gave-up"


class Requirement(Wire, frozen=True, kw_only=True):
    """What a node must have, as Kubernetes' node affinity writes it."""

    key: Annotated[str, Meta(description="label of the node", max_length=316)]
    operator: Annotated[str, Meta(pattern="^(In|NotIn|Exists|DoesNotExist|Gt|Lt)$")]
    values: Annotated[list[Annotated[str, Meta(max_length=63)]], Meta(max_length=16)] = []


class RecipeUse(Wire, frozen=True, kw_only=True):
    """A known issue that was recognised, and what was done about it."""

    name: Annotated[str, Meta(description="of the recipe", max_length=63)]
    attempt: Annotated[int, Meta(description="the attempt that it changed", ge=1)]
    outcome: RecipeOutcome
    seen: Annotated[str, Meta(description="what matched", max_length=512)] = ""
    env: Annotated[
        dict[str, Annotated[str, Meta(max_length=1024)]],
        Meta(description="variables for the new containers", max_length=32),
    ] = {}
    placed: Annotated[
        list[Requirement], Meta(description="what the nodes of the gang must have", max_length=16)
    ] = []
    message: Annotated[str, Meta(description="what was changed, or why nothing was", max_length=512)] = ""
    advice: Annotated[str, Meta(description="what the job's owner should change", max_length=2048)] = ""


class RecoverySpec(Wire, frozen=True, kw_only=True):
    """Which gang, and what started it. Only `causes` grows: triage appends to it, the recovery takes up."""

    gang: GangRef
    number: Annotated[int, Meta(description="the job's n-th recovery", ge=1)]
    incident: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    fault: Fault
    detected_at: datetime
    summary: Annotated[str, Meta(description="the first cause, in one sentence", max_length=512)] = ""
    avoid_node: Annotated[
        str, Meta(description="the blamed or suspected node, if any", max_length=NAME_CHARS_MAX)
    ] = ""
    nodes: Annotated[list[str], Meta(description="where the ranks ran", max_length=4096)] = []
    nodes_without_devices: Annotated[
        list[str],
        Meta(
            description="of these nodes, those where no rank is known to have held an accelerator; no spare "
            "takes their place",
            max_length=4096,
        ),
    ] = []
    gpus: Annotated[int, Meta(description="accelerators that the gang holds", ge=0)] = 0
    witnesses: Annotated[list[Witness], Meta(max_length=8)] = []
    causes: Annotated[
        list[Cause],
        Meta(description="every fault for which triage has decided to restart this gang", max_length=64),
    ] = []


class Recreation(Wire, frozen=True, kw_only=True):
    """A job that is deleted and made anew, because its framework would not start the whole gang again."""

    attempt: Annotated[int, Meta(ge=1)]
    why: Annotated[str, Meta(max_length=512)]
    definition: Annotated[
        str,
        Meta(
            description="the job as it is made again, in JSON; empty once it was",
            max_length=DEFINITION_CHARS_MAX,
            extra=WHOLE,
        ),
    ] = ""


class RecoveryStatus(Wire, frozen=True, kw_only=True):
    phase: Phase = Phase.PLANNED
    attempt: Annotated[int, Meta(ge=1)] = 1
    reason: Annotated[str, Meta(description="stable, CamelCase", max_length=63)] = ""
    message: Annotated[str, Meta(description="what happens now, in plain words", max_length=1024)] = ""
    causes: Annotated[list[Cause], Meta(max_length=64)] = []
    nodes: Annotated[
        list[str],
        Meta(description="where the ranks ran that a later attempt has stopped", max_length=4096),
    ] = []
    nodes_without_devices: Annotated[
        list[str], Meta(description="as in the spec, of the nodes of a later attempt", max_length=4096)
    ] = []
    witnesses: Annotated[
        list[Witness], Meta(description="of the ranks that a later attempt has stopped", max_length=8)
    ] = []
    avoid_nodes: Annotated[
        list[str], Meta(description="broken nodes that the gang must not use now", max_length=256)
    ] = []
    suspects: Annotated[
        list[str],
        Meta(description="nodes that are only suspected; the gang prefers other nodes", max_length=64),
    ] = []
    uncounted: Annotated[
        list[int],
        Meta(
            description="attempts in which the ranks never all ran; they do not count",
            max_length=128,
            extra=NEWEST,
        ),
    ] = []
    phases: Annotated[list[PhaseTime], Meta(max_length=64, extra=NEWEST)] = []
    deadline: Annotated[datetime | None, Meta(description="of the present phase")] = None
    checkpoint: CheckpointChoice | None = None
    fruitless: Annotated[
        list[int],
        Meta(description="steps that an attempt began from and never moved on", max_length=16, extra=NEWEST),
    ] = []
    priority: Annotated[
        int | None, Meta(description="priority of the ranks' pods; pods of lower priority make room")
    ] = None
    tolerations: Annotated[
        list[Toleration],
        Meta(description="of the ranks' pods, beyond those of their job's templates", max_length=32),
    ] = []
    leftovers: Annotated[
        list[Annotated[str, Meta(max_length=8)]],
        Meta(
            description="first 8 characters of the uids of ended pods that the job kept at the resume",
            max_length=4096,
        ),
    ] = []
    last_step: Annotated[int | None, Meta(description="last step seen before the stop")] = None
    resumed_step: Annotated[int | None, Meta(description="first step seen after the resume")] = None
    lost_steps: int | None = None
    lost_gpu_s: float | None = None
    totals: Totals | None = None
    failed_log: FailedLog | None = None
    recreation: Recreation | None = None
    recipes: Annotated[
        list[RecipeUse],
        Meta(description="known issues that were recognised, newest last", max_length=8, extra=NEWEST),
    ] = []
    gang_uid: Annotated[
        str, Meta(description="uid of the job that stands for the gang since it was made anew", max_length=64)
    ] = ""
    conditions: Annotated[list[Condition], Meta(max_length=16)] = []


class Recovery(Wire, frozen=True, kw_only=True):
    """What was done to one gang, step by step."""

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
        """The Incidents that it was opened for, or has taken up."""
        causes = (*self.spec.causes, *self.status.causes)
        return {self.spec.incident, *(cause.incident for cause in causes)}

    def has_cause(self, incident: str, finding: str) -> bool:
        """It was opened for that fault, or triage has told it of it."""
        causes = (*self.spec.causes, *self.status.causes)
        if not causes:  # just opened, by a version that kept no causes here
            return self.spec.incident == incident
        return any(cause.covers(incident, finding) for cause in causes)

    @property
    def nodes(self) -> list[str]:
        """Where the ranks ran that this attempt has stopped."""
        return self.status.nodes or self.spec.nodes

    @property
    def nodes_with_devices(self) -> list[str]:
        """Those of `nodes` where a rank held accelerators. An earlier version wrote nothing of this, so all
        nodes of its recoveries count."""
        told = self.status if self.status.nodes else self.spec
        without = frozenset(told.nodes_without_devices)
        return [name for name in told.nodes if name not in without]

    @property
    def witnesses(self) -> list[Witness]:
        """Of the ranks that this attempt has stopped; the one that was lost first comes first. A later
        attempt may have none: what the first one's say is not its own."""
        return self.status.witnesses if self.status.attempt > 1 else self.spec.witnesses

    @property
    def gang_uid(self) -> str:
        """Of the job as it is now: one that was made anew has another uid."""
        return self.status.gang_uid or self.spec.gang.uid
