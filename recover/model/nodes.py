"""Nodes as decisions see them."""

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
    """As the API has it: taints are one list that is written whole, and others' must stay as they are."""


class Quarantine(msgspec.Struct, frozen=True, rename="camel"):
    """Our own annotation on a quarantined node: why, and what is needed to undo it exactly."""

    incident: str
    fault: str
    at: datetime
    cordoned: bool
    """True where we set `unschedulable`; False where a person had, or where the taint alone was wanted."""


class Release(msgspec.Struct, frozen=True, rename="camel"):
    """Our own annotation on a node that was released: which of its findings that has answered."""

    at: datetime
    """As in `released-at`. An earlier version writes only that one: then this is of an older release."""
    findings: Answered


class OwnCondition(msgspec.Struct, frozen=True):
    """The condition `AcceleratorHealthy` of a Node, which the controller itself writes."""

    status: str
    reason: str
    message: str


class SignalKind(StrEnum):
    """Where a signal stands: on the Node, but for a report."""

    CONDITION = "condition"
    TAINT = "taint"
    LABEL = "label"
    REPORT = "report"
    """In a ConfigMap of a device plugin, or in what the kubelet offers of its devices."""


class NodeSignal(msgspec.Struct, frozen=True):
    """What another controller says of the node, by a row of node_signals.toml or of people's own."""

    kind: SignalKind
    name: str
    value: str
    by: str
    severity: Severity
    fault: Fault
    reason: str = ""
    """That of a condition."""
    since: datetime | None = None
    """By the API server's clock, or by that of whoever writes it; None where nobody tells. Of a report
    without a time: when this controller saw it first."""
    device: str = ""
    """The one accelerator that it is about, as told_devices.py names those that a pod holds."""
    settles_s: float = 0.0
    """For so long it may be part of a healthy life, and makes its node suspect only afterwards."""
    is_announced: bool = False
    """It tells of what is still to come, and counts from `since` on."""

    @property
    def code(self) -> str:
        return f"{self.kind}-{self.name}"

    @property
    def place(self) -> str:
        """What no other signal of the node has. A report stands once for each device."""
        return f"{self.code}-{self.value}" if self.kind is SignalKind.REPORT and self.value else self.code


class Node(msgspec.Struct, frozen=True):
    name: str
    uid: str
    version: str
    labels: Mapping[str, str] = {}
    labelled_at: Mapping[str, datetime] = {}
    """When somebody last wrote these labels, by the API server's clock, or another label of the same writer
    since. Only of labels that tell of work on the node's driver."""
    annotations: Mapping[str, str] = {}
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    ready_since: datetime | None = None
    boot_id: str = ""
    is_accelerated: bool = True
    """It offers accelerators, or did before its device plugin went away."""
    quarantine: Quarantine | None = None
    released_at: datetime | None = None
    """When a person last released it, or a repair gave it back: evidence from before no longer acts."""
    answered: Answered | None = None
    """How far its kernel log was known then; None where no agent reported, and from an earlier version."""
    accelerators: int = 0
    """What its kubelet offers in all; a shared device may count several times."""
    allocatable: Mapping[str, int] = {}
    """Accelerators that pods may be given there now, by resource."""
    signals: tuple[NodeSignal, ...] = ()
    """What other controllers say of it; never what we have written ourselves."""
    told: OwnCondition | None = None
    """Our own condition as it stands on the Node. No diagnosis reads it."""
    capacity: Mapping[str, int] = {}
    """The same of all that it has: a broken device is no longer allocatable."""
