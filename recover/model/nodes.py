"""Defines nodes as decisions see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api.shared import Answered

__all__ = ["Node", "NodeSignal", "OwnCondition", "Quarantine", "Release", "SignalKind", "Taint"]


class Taint(msgspec.Struct, frozen=True, rename="camel"):
    key: str
    effect: str
    value: str = ""
    time_added: str = ""
    """Time as the API has it: the list of taints is written as a whole, and the taints of others must stay as
    they are."""


class Quarantine(msgspec.Struct, frozen=True, rename="camel"):
    """Our annotation on a quarantined node: the reason, and what is needed to undo the quarantine exactly."""

    incident: str
    fault: str
    at: datetime
    cordoned: bool
    """True if we set `unschedulable`; False if a person had set it, or if only the taint was wanted."""


class Release(msgspec.Struct, frozen=True, rename="camel"):
    """Our annotation on a node whose quarantine has ended: the findings of the node that this end has
    answered."""

    at: datetime
    """Time as in `released-at`. An earlier version of Rekindle writes only `released-at`; if the two differ,
    this annotation belongs to the end of an older quarantine."""
    findings: Answered
    incident: str = ""
    """Incident of the quarantine that ended; empty in an annotation of an earlier version."""


class OwnCondition(msgspec.Struct, frozen=True):
    """The condition `AcceleratorHealthy` of a Node, which the controller itself writes."""

    status: str
    reason: str
    message: str


class SignalKind(StrEnum):
    """Place of a signal: all kinds but a report are on the Node."""

    CONDITION = "condition"
    TAINT = "taint"
    LABEL = "label"
    REPORT = "report"
    """In a ConfigMap of a device plugin, or in the devices that the kubelet offers."""


class NodeSignal(msgspec.Struct, frozen=True):
    """A statement of another controller about the node, according to a row of node_signals.toml or of the
    settings."""

    kind: SignalKind
    name: str
    value: str
    by: str
    severity: Severity
    fault: Fault
    reason: str = ""
    """Reason of a condition."""
    since: datetime | None = None
    """Start of the signal, by the API server's or the writer's clock; None if nobody provides it. For a
    report without a time: when this controller first saw it."""
    device: str = ""
    """The single accelerator that the signal is about, with the name that told_devices.py gives to a pod's
    devices."""
    settles_s: float = 0.0
    """Time for which the signal may be part of a healthy life. It makes its node suspect only after that
    time."""
    is_announced: bool = False
    """Whether the signal announces a future event. It then counts from `since` on."""

    @property
    def code(self) -> str:
        return f"{self.kind}-{self.name}"

    @property
    def place(self) -> str:
        """Key that is unique among the node's signals. Each device has its own report."""
        return f"{self.code}-{self.value}" if self.kind is SignalKind.REPORT and self.value else self.code


class Node(msgspec.Struct, frozen=True):
    name: str
    uid: str
    version: str
    created: datetime | None = None
    """Time at which the machine joined the cluster. A Node that was deleted and created again is younger than
    what was written about the Node before."""
    labels: Mapping[str, str] = {}
    labelled_at: Mapping[str, datetime] = {}
    """Time at which somebody last wrote these labels, or another label with the same writer, by the API
    server's clock. Kept only for labels that show work on the node's driver."""
    annotations: Mapping[str, str] = {}
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    ready_since: datetime | None = None
    boot_id: str = ""
    is_accelerated: bool = True
    """Whether the node offers accelerators, or did so before its device plugin went away."""
    quarantine: Quarantine | None = None
    released_at: datetime | None = None
    """Time at which a person last ended the node's quarantine, or a repair returned the node to service.
    Rekindle no longer acts on evidence from before that time."""
    answered: Answered | None = None
    """How far the node's kernel log was known at that time. None if no agent reported, and if an earlier
    version of Rekindle wrote the time."""
    released_from: str = ""
    """Incident of the quarantine that ended at that time, if it is known. Later faults do not join that
    Incident."""
    accelerators: int = 0
    """Number of all accelerators in the node's capacity; a shared device may count several times."""
    allocatable: Mapping[str, int] = {}
    """Accelerators that the kubelet offers to pods now, by resource."""
    signals: tuple[NodeSignal, ...] = ()
    """Statements of other controllers about the node; never what Rekindle itself has written."""
    told: OwnCondition | None = None
    """Our own condition as it is on the Node. No diagnosis reads it."""
    capacity: Mapping[str, int] = {}
    """All accelerators that the node has, by resource: a broken device is no longer allocatable."""
