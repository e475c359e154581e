"""Pods as decisions see them: ranks, scans, and those that belong to no gang."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from recover.api import GangRef, Toleration
from recover.model.volumes import Volume

__all__ = ["Bystander", "Container", "Outsider", "Pod", "PodPhase", "UnhealthyDevice", "Waiting"]


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Waiting(msgspec.Struct, frozen=True):
    """Why a container has not started, in its kubelet's words."""

    reason: str = ""
    """`ContainerCreating`, `ImagePullBackOff`, ..."""
    message: str = ""


class Container(msgspec.Struct, frozen=True):
    """The latest ending of a container: of this instance, or of the one before a restart in place."""

    name: str
    running: bool
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None
    waiting: Waiting | None = None
    beside: bool = False
    """It asks for no accelerator, and another container of its pod does: its end is no lost rank."""


class UnhealthyDevice(msgspec.Struct, frozen=True):
    """A device of a container that its kubelet reports as `Unhealthy`."""

    resource: str
    """`nvidia.com/gpu`, or `claim:<name>/<request>` for a device of a resource claim (DRA)."""
    device: str
    """The id by which the device plugin or the DRA driver knows it: NVIDIA's plugin gives the GPU's UUID."""
    message: str = ""
    """From the DRA driver; a device plugin gives none."""


class Outsider(msgspec.Struct, frozen=True):
    """Whose a pod is that belongs to no gang, and what its training containers ask for."""

    owner: GangRef
    containers: tuple[Mapping[str, object], ...] = ()


_REFUSED = frozenset({"UnexpectedAdmissionError"})
_NOT_STARTED = frozenset({"ContainerCreating", "CreateContainerError", "RunContainerError"})


class Pod(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    version: str
    owner_uid: str = ""
    owner_kind: str = ""
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: datetime | None = None
    admitted_at: datetime | None = None
    """When its kubelet took it up, to start or to refuse it."""
    deleting_since: datetime | None = None
    is_missed: bool = False
    """Whether the pod is gone and no watch reported its deletion, as when a watch broke and the next list
    lacked the pod. `deleting_since` is then the time at which the controller noticed."""
    deleting_until: datetime | None = None
    """When the kubelet kills what still runs of it. Whoever deletes a pod chooses this time. It may be
    centuries ahead, where nobody can calculate with it: compare it only."""
    containers: tuple[Container, ...] = ()
    accelerators: int = 0
    has_claims: bool = False
    """It has resource claims (DRA). Which devices they mean does not stand in the pod."""
    requests: tuple[tuple[str, int], ...] = ()
    """What the pod takes of each accelerator resource of its node, as the scheduler counts it."""
    tolerations: tuple[Toleration, ...] = ()
    """With those that admission gave it, which its job's template lacks."""
    priority: int = 0
    grace_s: int = 30
    """How long the pod may take to end by its own spec."""
    gated: bool = False
    unschedulable: str = ""
    """The scheduler's message, while it finds no place."""
    failure: str = ""
    """Why its kubelet ended or refused it as a whole, as `Evicted: ...`; a container's own end says more."""
    volumes: tuple[Volume, ...] = ()
    environments: tuple[str, ...] = ()
    """ConfigMaps that all of its containers with accelerators (or without any, all) read by envFrom."""
    unhealthy: tuple[UnhealthyDevice, ...] = ()
    """Its devices that are not healthy, in its kubelet's words."""
    outsider: Outsider | None = None

    @property
    def was_rank_until(self) -> datetime | None:
        """The last time at which a deleted pod was certainly a rank; None if it was none. If the deletion was
        missed, only the start of the pod is certain."""
        return self.admitted_at if self.is_missed else self.deleting_since

    @property
    def not_started(self) -> str:
        """Why its kubelet has not started it on its node, in one word of the kubelet; empty if it has, or if
        the word tells of something that the pod's own template asks for, as an image that is not there."""
        if not self.node or self.deleting_since is not None:
            return ""
        if self.phase is PodPhase.FAILED:
            refusal = self.failure.partition(":")[0]
            return refusal if refusal in _REFUSED else ""
        if self.phase is not PodPhase.PENDING:
            return ""
        waiting = (one.waiting.reason for one in self.containers if one.waiting is not None)
        return next((reason for reason in waiting if reason in _NOT_STARTED), "")

    @property
    def may_hold_devices(self) -> bool:
        """It has accelerators, or claims that may be of any."""
        return self.accelerators > 0 or self.has_claims

    @property
    def ended(self) -> bool:
        """Terminal with all containers ended: nothing of it runs any more.

        A Job keeps its Failed pods, so waiting for every old pod to be deleted would wait for ever.
        """
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED) and not any(
            c.running for c in self.containers
        )


class Bystander(msgspec.Struct, frozen=True):
    """A pod that is nobody's rank, but would be lost with its node: kept in mode repair only."""

    namespace: str
    name: str
    uid: str
    node: str
    deleting: bool = False
