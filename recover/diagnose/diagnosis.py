"""What diagnosis says: one Diagnosis per fault, with the gangs that it affects and how urgent that is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api import Blame, Evidence, Suspect
from recover.diagnose.awaited import Awaited
from recover.k8s.bodies import shortened
from recover.model import Gang
from recover.policy.faults import QuarantineLevel, quarantine_level

__all__ = ["JOB_FAILED", "AffectedGang", "Diagnosis", "Loss", "fingerprint", "incident_name"]


JOB_FAILED = "job-failed"
"""Code of the loss of a rank of which only its job tells."""


class Loss(msgspec.Struct, frozen=True):
    """A rank that is gone or failed."""

    pod: str
    pod_uid: str
    node: str
    at: datetime
    """Never later than now: nobody may have told it, or a clock that runs ahead."""
    told_at: datetime | None
    code: str
    """`exit-1`, `oom-killed`, `deleted`, `node-gone`, `evicted`, `made-way`, `not-admitted`,
    `job-failed`."""
    restarts: int = 0
    in_place: bool = False
    """Its container was started again in the same pod: elastic training may go on."""
    propagated: bool = False
    """Its log says that another rank was gone first."""
    error: str = ""
    """Code of the first error in its log, if its agent has read one."""
    error_at: datetime | None = None
    """When its log showed that, by its node's clock."""
    created: datetime | None = None
    """When its pod was created."""
    is_missed: bool = False
    """Whether no watch reported that its pod was deleted: `at` is the time at which that was noticed, and the
    pod that takes its place may be older."""


class AffectedGang(msgspec.Struct, frozen=True):
    """A gang that the fault affects. It is stopped once `due` has passed; None means not for this reason."""

    gang: Gang
    due: datetime | None
    dead: bool
    """It trains no more, whatever we do."""
    explained: bool = False
    """The fault explains why it failed, so that is no fault of its own."""
    failed_at: datetime | None = None
    """When that was, if anybody tells."""
    born_at: datetime | None = None
    """When the failed pod was created: its failure is never older than that."""
    is_suspicion: bool = False
    """No finding that affects the gang is a proof, so a dead gang counts as affected only if the finding
    explains its failure."""
    may_stay: bool = False
    """The devices that it uses are at most degraded. So the gang trains on if there is no better place,
    whatever else broke on the node."""
    awaited: Awaited = Awaited.UNTOLD
    """What its next checkpoint means, where it may train on until then."""


class Diagnosis(msgspec.Struct, frozen=True):
    """One fault with its evidence. `name` is the name of the Incident, the same at every look. The other
    fields say what the evidence shows now, and decisions follow them."""

    name: str
    fault: Fault
    """The class of the strongest evidence, whatever the open Incident was opened for."""
    severity: Severity
    detected_at: datetime
    """The Incident's, which what comes later joins."""
    seen_at: datetime
    """When that which now acts was seen. It never acts as a mode would that began later."""
    summary: str
    blame: Blame
    settled: bool
    """False while later evidence may still change the blame."""
    settles_at: datetime | None = None
    node: str = ""
    boot_id: str = ""
    finding: str = ""
    """Id of the node's strongest finding. A stronger finding that joins the Incident is another cause."""
    struck_at: datetime | None = None
    """When that finding was first shown, if it is younger than the Incident. The brake counts by this
    time."""
    error: str = ""
    """The first error of a gang's own failure. Its attempts are counted by it."""
    gang: Gang | None = None
    evidence: tuple[Evidence, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    affected: tuple[AffectedGang, ...] = ()
    drain: bool = False
    """The vendor's verdict: no new work there, the present work may go on."""
    blind: Mapping[str, str] = {}
    """Nodes that may be to blame, and what could not be read there: nobody knows, so none is taken out."""

    @property
    def level(self) -> QuarantineLevel:
        """How far the node is taken out of service for this fault."""
        return quarantine_level(self.fault, self.severity, drain=self.drain)


def fingerprint(*parts: str) -> str:
    """Eight hex digits that tell one fault from another in an object's name."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def incident_name(subject: str, fault: Fault, *parts: str) -> str:
    """Of a node's or a job's fault; `parts` tell it from others of the same class there."""
    return f"{shortened(subject, 200)}-{fault}-{fingerprint(*parts)}"
