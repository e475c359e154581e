"""Defines gangs as decisions see them: one view for the jobs of all frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.wire.resource import Resource
from recover.api import GangRef, Requirement
from recover.model.volumes import Volume

__all__ = ["Gang", "Mark", "Template", "Terminal"]


class Template(msgspec.Struct, frozen=True):
    """The fields of a gang's pod template that Rekindle needs."""

    volumes: tuple[Volume, ...] = ()
    security_context: Mapping[str, object] = {}
    containers: tuple[Mapping[str, object], ...] = ()
    """The complete containers as the API server sends them: a merge patch replaces lists."""
    affinity: Mapping[str, object] = {}
    tolerations: tuple[Mapping[str, object], ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    """Host names that the template's required node affinity already keeps out."""
    count: int = 0
    """Ranks that are created from this template; 0 if the framework's object does not say."""
    node_selector: Mapping[str, str] = {}
    priority_class: str = ""
    after: tuple[str, ...] = ()
    """Templates whose ranks must all have succeeded before the framework creates ranks from this template."""


class Mark(msgspec.Struct, frozen=True, rename="camel"):
    """Our annotation on a job: the recovery and attempt that stopped or resumed it last.

    It is written in the same patch as the stop or the resume, so that neither can happen twice.
    """

    recovery: str
    attempt: int
    did: str
    """`stopped` or `resumed`; `left-stopped` or `left` once Rekindle has dealt with the deletion of the
    Recovery (triage/left_behind.py)."""
    avoided: tuple[str, ...] = ()
    """Host names that the template's affinity keeps out because of us, so that the next start can undo it."""
    placed: tuple[Requirement, ...] = ()
    """Requirements on the nodes that the template's affinity has because of us."""
    suspected: tuple[str, ...] = ()
    """Host names that the template's affinity makes less preferable because of our start."""
    restarts: int | None = None
    """The framework's own number of restarts after the stop, if the stop changes it."""
    woken: int | msgspec.UnsetType = msgspec.UNSET
    """How often Rekindle has written the mark again, so that the framework's controller processes the job
    again (recovery/wake.py)."""


class Terminal(msgspec.Struct, frozen=True):
    """The permanent end of the job, as its framework reports it."""

    succeeded: bool
    reason: str = ""
    message: str = ""
    at: datetime | None = None
    """Time of the end, if the job's status contains it."""

    @property
    def is_meant(self) -> bool:
        """Whether the end is no fault: the job has completed, or has reached its owner's deadline
        (`activeDeadlineSeconds`). Both texts come from Kubernetes' Job controller; training-operator 1.9 has
        only the second."""
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
    """Field manager of the last write to the job's suspend field, if the API server provides it."""
    terminal: Terminal | None = None
    failures: int = 0
    """Failed pods that the framework has counted."""
    started_at: datetime | None = None
    """Time of the last start or resume, if the job's status contains it. While a Job has this time, an API
    server before Kubernetes 1.36 refuses a changed affinity."""
    is_resuming: bool = False
    """Whether the job is no longer suspended while its status does not show that yet."""
    resumed_at: datetime | None = None
    """Time at which anybody resumed the job after a suspension, if its status contains it."""
    ends_by_success: bool = False
    """Whether some ranks may succeed for all: the framework then deletes the others before the job's status
    shows the end."""
    done_ranks: str = ""
    """Ranks that the framework counts as ended and never creates again, in its own notation."""
    size: int = 0
    """Number of pods of the whole gang."""
    may_lack: int = 0
    """Number of ranks without which an elastic job still trains."""
    unsupported: str = ""
    """Why the job cannot be stopped and resumed as one gang; empty if it can."""
    foreign_owner: str = ""
    """The other writer that decides about the job's suspend field (Kueue, an owning controller); empty if
    there is none."""
    mark: Mark | None = None
    templates: Mapping[str, Template] = {}
    """Templates by replica type; frameworks with one template use the empty name."""
    part_of: str = ""
    """Uid of the gang whose framework has created this job; empty if the job is a gang itself."""
    parts: int = 0
    """Number of jobs that the framework keeps for the gang while it is suspended."""
    restarts: int = 0
    """The framework's own number of restarts; for a part, the number for which it was created."""
    tests: Mapping[str, object] = {}
    """The fields of the job's object that decisions read, with their values, by JSON Pointer; None for a
    missing field. A patch that tests them needs no version. Empty if only the version shows a change."""
    definition: bytes = b""
    """The object as people wrote it, kept only for jobs that may be created again."""
