"""Gangs as decisions see them: one view for the jobs of all frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.wire.resource import Resource
from recover.api import GangRef, Requirement
from recover.model.volumes import Volume

__all__ = ["Gang", "Mark", "Template", "Terminal"]


class Template(msgspec.Struct, frozen=True):
    """What we need of a gang's pod template."""

    volumes: tuple[Volume, ...] = ()
    security_context: Mapping[str, object] = {}
    containers: tuple[Mapping[str, object], ...] = ()
    """Raw and whole: a merge patch replaces lists."""
    affinity: Mapping[str, object] = {}
    tolerations: tuple[Mapping[str, object], ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    """Host names that the template's required node affinity already keeps out."""
    count: int = 0
    """Ranks that are created from this template; 0 if the framework's object does not say."""
    node_selector: Mapping[str, str] = {}
    priority_class: str = ""


class Mark(msgspec.Struct, frozen=True, rename="camel"):
    """Our annotation on a job: which recovery and attempt stopped or resumed it last.

    It is written in the same patch as the stop or the resume, so that neither can happen twice.
    """

    recovery: str
    attempt: int
    did: str
    """`stopped` or `resumed`."""
    avoided: tuple[str, ...] = ()
    """Host names that the template's affinity keeps out because of us, so that the next start can undo it."""
    placed: tuple[Requirement, ...] = ()
    """What the template's affinity asks of the nodes because of us."""
    suspected: tuple[str, ...] = ()
    """Host names that the template's affinity makes less preferable because of our start."""
    restarts: int | None = None
    """What the stop brings the framework's own number of restarts to, where that is part of it."""
    woken: int | msgspec.UnsetType = msgspec.UNSET
    """How often Rekindle has written the mark once more, so that the framework's controller processes the
    job again (recovery/wake.py)."""


class Terminal(msgspec.Struct, frozen=True):
    """The job has ended for good, in its framework's own opinion."""

    succeeded: bool
    reason: str = ""
    message: str = ""
    at: datetime | None = None
    """When, where its status tells."""

    @property
    def is_meant(self) -> bool:
        """It has completed, or has reached its owner's deadline (`activeDeadlineSeconds`), so there is no
        fault. Both words are of Kubernetes' Job controller; training-operator 1.9 has the second alone."""
        is_late = self.reason == "DeadlineExceeded" or "longer than specified deadline" in self.message
        return self.succeeded or is_late


class Gang(msgspec.Struct, frozen=True):
    """A job whose ranks live and die together, whatever its framework."""

    ref: GangRef
    resource: Resource
    version: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: datetime | None = None
    deleting: bool = False
    suspended: bool = False
    suspend_writer: str = ""
    """Field manager of the last write to its suspend field, where the API server tells."""
    terminal: Terminal | None = None
    failures: int = 0
    """Failed pods that the framework has counted."""
    started_at: datetime | None = None
    """When it was last started or resumed, where its status tells; then an older API server refuses another
    affinity."""
    is_resuming: bool = False
    """It is suspended no more, and its status does not say so yet."""
    resumed_at: datetime | None = None
    """When it was resumed after a suspension, by whomever, where its status tells."""
    ends_by_success: bool = False
    """Some of its ranks may succeed for all: then the others are deleted before its status tells."""
    done_ranks: str = ""
    """Ranks that the framework counts as ended and never makes again, in its own notation."""
    size: int = 0
    """Pods of the whole gang."""
    may_lack: int = 0
    """Ranks without which it trains all the same: it is elastic."""
    unsupported: str = ""
    """Why it cannot be stopped and resumed as one gang; empty where it can."""
    foreign_owner: str = ""
    """Who else decides about its suspend field (Kueue, an owning controller); empty if nobody."""
    mark: Mark | None = None
    templates: Mapping[str, Template] = {}
    """By replica type; frameworks with one template use the empty name."""
    part_of: str = ""
    """Uid of the gang whose framework has made this job; empty if it is a gang itself."""
    parts: int = 0
    """Jobs that its framework keeps for it while it is suspended."""
    restarts: int = 0
    """The framework's own number of restarts; of a part, the one that it was made for."""
    tests: Mapping[str, object] = {}
    """The fields of its object that decisions read, as they are in it, by JSON Pointer; None for one that is
    missing. A patch that tests them needs no version. Empty if only the version tells of a change."""
    definition: bytes = b""
    """What people wrote of it, kept only of jobs that may be made anew."""
