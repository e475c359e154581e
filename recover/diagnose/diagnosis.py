"""Data that diagnosis returns: one Diagnosis for each fault, with the affected gangs and the time at which
each of them is stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api import Answered, Blame, Evidence, Suspect
from recover.diagnose.awaited import Awaited
from recover.k8s.bodies import shortened
from recover.model import Gang
from recover.policy.faults import QuarantineLevel, quarantine_level

__all__ = ["JOB_FAILED", "AffectedGang", "Diagnosis", "Loss", "fingerprint", "incident_name"]


JOB_FAILED = "job-failed"
"""Code of the loss of a rank that only its job shows."""


class Loss(msgspec.Struct, frozen=True):
    """A rank that is gone or failed."""

    pod: str
    pod_uid: str
    node: str
    at: datetime
    """Time of the loss; now if the time is unknown, or if a clock that runs ahead gave a later time."""
    reported_at: datetime | None
    """Time of the loss as the pod or the job shows it, also if it is later than now; None if unknown."""
    code: str
    """Kind of the loss: `exit-` and the exit code, `failed` (without a known exit code), `oom-killed`,
    `deleted`, `node-gone`, `evicted`, `made-way`, `not-admitted`, `pod-deadline`, `job-failed`."""
    restarts: int = 0
    in_place: bool = False
    """True if its container failed and its pod still exists. The kubelet may have started the container
    again, so elastic training may continue."""
    propagated: bool = False
    """True if its log says that another rank was lost first."""
    error: str = ""
    """Code of the first error in its log, if its agent has read one."""
    error_at: datetime | None = None
    """Time at which its log showed the first error, by its node's clock."""
    created: datetime | None = None
    """Time at which its pod was created."""
    not_before: datetime | None = None
    """Earliest time of the loss, if its pod vanished and was never seen being deleted; otherwise None. `at`
    is then the time at which the controller noticed, and the pod that takes its place may have been created
    before that."""

    @property
    def is_missed(self) -> bool:
        return self.not_before is not None


class AffectedGang(msgspec.Struct, frozen=True):
    """A gang that the fault affects. The gang is stopped once `due` has passed; if `due` is None, the gang is
    not stopped for this fault."""

    gang: Gang
    due: datetime | None
    dead: bool
    """True if the gang no longer trains, whatever Rekindle does."""
    explained: bool = False
    """True if the fault explains the gang's failure, so the failure is no separate fault."""
    failed_at: datetime | None = None
    """Time of the failure, if known."""
    born_at: datetime | None = None
    """Time at which the oldest failed pod was created: the failure is never older than that."""
    is_suspicion: bool = False
    """True if no finding that affects the gang is a proof. A dead gang then counts as affected only if the
    finding explains its failure."""
    may_stay: bool = False
    """True if the devices that the gang uses are at most degraded. The gang then continues to train if there
    is no better place, whatever else broke on the node."""
    awaited: Awaited = Awaited.UNTOLD
    """Meaning of the gang's next checkpoint, if the gang may train until then."""


class Diagnosis(msgspec.Struct, frozen=True):
    """One fault with its evidence. `name` is the name of the Incident, and is the same at every reconcile.
    The other fields describe the present evidence, and decisions follow them."""

    name: str
    fault: Fault
    """Class of the strongest evidence, regardless of the class for which the open Incident was opened."""
    severity: Severity
    detected_at: datetime
    """Time of detection: that of the open Incident if there is one, because later evidence joins it."""
    seen_at: datetime
    """Time at which the evidence was last seen on which a decision would act. A mode that was enabled later
    does not act on this evidence."""
    summary: str
    blame: Blame
    settled: bool
    """False while later evidence may still change the blame."""
    settles_at: datetime | None = None
    node: str = ""
    boot_id: str = ""
    finding: str = ""
    """Id of the node's strongest finding. If a stronger finding joins the Incident, it is a different
    cause."""
    struck_at: datetime | None = None
    """Time at which that finding was first shown, or None if the fault has no finding. The finding may be
    younger than the Incident, so the brake counts by this time."""
    error: str = ""
    """First error of a gang's own failure. Attempts are counted by this error."""
    gang: Gang | None = None
    evidence: tuple[Evidence, ...] = ()
    known: Answered | None = None
    """How far the node's open findings reach: an answer given now would cover the log up to there."""
    suspects: tuple[Suspect, ...] = ()
    affected: tuple[AffectedGang, ...] = ()
    drain: bool = False
    """True if the vendor's advice is: no new work on the node, the present work may continue."""
    why_not_covered: Mapping[str, str] = {}
    """Nodes that may be the culprit, each with the reason why its agent could not see a fault there. Nobody
    knows the culprit, so none of these nodes is taken out of service."""

    @property
    def level(self) -> QuarantineLevel:
        """Level at which the node is taken out of service for this fault."""
        return quarantine_level(self.fault, self.severity, drain=self.drain)


def fingerprint(*parts: str) -> str:
    """Returns eight hex digits that distinguish one fault from another in an object's name."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def incident_name(subject: str, fault: Fault, *parts: str) -> str:
    """Returns the name of the Incident for a fault of a node or job. `parts` distinguish the fault from
    others of the same class."""
    return f"{shortened(subject, 200)}-{fault}-{fingerprint(*parts)}"
