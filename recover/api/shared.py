"""Structs that Incident and Recovery share."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from recover.k8s.limits import NAME_CHARS_MAX

__all__ = ["Answered", "Blame", "Condition", "GangRef", "Toleration", "Wire"]


class Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Base of the structs. Names are camelCase on the wire, as in all of Kubernetes."""


class Blame(StrEnum):
    """The culprit, once Rekindle has determined it."""

    NODE = "node"
    APPLICATION = "application"
    RESOURCES = "resources"
    """The job used up its memory, a disk or a quota."""
    UNKNOWN = "unknown"


class GangRef(Wire, frozen=True, kw_only=True):
    """One job, whose pods must all run at the same time."""

    api_version: Annotated[str, Meta(max_length=127)]
    """API version of the job, for example kubeflow.org/v1."""
    kind: Annotated[str, Meta(max_length=63)]
    """Kind of the job, for example PyTorchJob."""
    namespace: Annotated[str, Meta(max_length=63)]
    """Namespace of the job."""
    name: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    """Name of the job."""
    uid: Annotated[str, Meta(max_length=64)]
    """UID of the job."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Toleration(Wire, frozen=True, kw_only=True):
    """A toleration of the job's pods, as in a pod's spec."""

    key: Annotated[str, Meta(max_length=317)] = ""
    """Key of the taint; empty means every taint."""
    operator: Annotated[str, Meta(max_length=63)] = ""
    """`Exists` or `Equal`; empty means `Equal`."""
    value: Annotated[str, Meta(max_length=63)] = ""
    """Value of the taint, for the operator `Equal`."""
    effect: Annotated[str, Meta(max_length=63)] = ""
    """Effect of the taint; empty means every effect."""


class Answered(Wire, frozen=True, kw_only=True):
    """How far a node's kernel log was known when its findings were answered. The sequences of records only
    grow within a boot, so no clock is needed."""

    boot_id: Annotated[str, Meta(max_length=64)]
    """Id of the node's boot at that time."""
    sequence: Annotated[
        int,
        Meta(
            description="Sequence of the last record that the node's agent had published. Findings of "
            "later records are new."
        ),
    ]
    last_seen: Annotated[
        datetime | None,
        Meta(description="The latest time that the agent had published, by the node's clock."),
    ] = None


class Condition(Wire, frozen=True, kw_only=True):
    """A standard Kubernetes condition."""

    type: Annotated[str, Meta(max_length=63)]
    """Type of the condition."""
    status: Annotated[str, Meta(pattern="^(True|False|Unknown)$")]
    """`True`, `False` or `Unknown`."""
    reason: Annotated[str, Meta(max_length=63)]
    """Stable reason in CamelCase; docs/reference/reasons.md explains each one."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """Explanation in plain words."""
    last_transition_time: datetime
    """Time at which the status last changed."""
