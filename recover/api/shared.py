"""What Incident and Recovery both hold."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from recover.k8s.limits import NAME_CHARS_MAX

__all__ = ["Answered", "Blame", "Condition", "GangRef", "Toleration", "Wire"]


class Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Camel case on the wire, as all of Kubernetes."""


class Blame(StrEnum):
    """Who is to blame, once settled."""

    NODE = "node"
    APPLICATION = "application"
    RESOURCES = "resources"
    """What the job may use was used up: memory, a disk, a quota."""
    UNKNOWN = "unknown"


class GangRef(Wire, frozen=True, kw_only=True):
    """One job: the object whose pods live and die together."""

    api_version: Annotated[str, Meta(max_length=127)]
    kind: Annotated[str, Meta(max_length=63)]
    namespace: Annotated[str, Meta(max_length=63)]
    name: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    uid: Annotated[str, Meta(max_length=64)]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Toleration(Wire, frozen=True, kw_only=True):
    """A taint that pods tolerate, as Kubernetes writes it."""

    key: Annotated[str, Meta(max_length=317)] = ""
    operator: Annotated[str, Meta(max_length=63)] = ""
    value: Annotated[str, Meta(max_length=63)] = ""
    effect: Annotated[str, Meta(max_length=63)] = ""


class Answered(Wire, frozen=True, kw_only=True):
    """How far a node's kernel log was known when its findings were answered, by the log itself: sequences of
    records only grow within a boot, and no clock counts them."""

    boot_id: Annotated[str, Meta(max_length=64)]
    sequence: Annotated[
        int, Meta(description="last record that its agent had published; findings of later records are news")
    ]
    last_seen: Annotated[
        datetime | None, Meta(description="the latest time that its agent had published, by the node's clock")
    ] = None


class Condition(Wire, frozen=True, kw_only=True):
    """A standard Kubernetes condition."""

    type: Annotated[str, Meta(max_length=63)]
    status: Annotated[str, Meta(pattern="^(True|False|Unknown)$")]
    reason: Annotated[str, Meta(max_length=63)]
    message: Annotated[str, Meta(max_length=1024)] = ""
    last_transition_time: datetime
