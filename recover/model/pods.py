"""Defines pods as decisions see them: ranks, scans, and pods that belong to no gang."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
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
    """Why a container has not started, as its kubelet reports it."""

    reason: str = ""
    """`ContainerCreating`, `ImagePullBackOff`, ..."""
    message: str = ""


class Container(msgspec.Struct, frozen=True):
    """A container with its latest end: that of this instance, or of the one before a restart in place."""

    name: str
    running: bool
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None
    waiting: Waiting | None = None
    beside: bool = False
    """Whether the container requests no accelerator while another container of its pod does: its end is no
    lost rank."""


class UnhealthyDevice(msgspec.Struct, frozen=True):
    """A device of a container that its kubelet reports as `Unhealthy`."""

    resource: str
    """`nvidia.com/gpu`, or `claim:<name>/<request>` for a device of a resource claim (DRA)."""
    device: str
    """Id of the device in the device plugin or the DRA driver: NVIDIA's plugin uses the GPU's UUID."""
    message: str = ""
    """Message of the DRA driver; a device plugin gives none."""


class Outsider(msgspec.Struct, frozen=True):
    """The owner of a pod that belongs to no gang, and the training containers of the pod, with the fields in
    `containers.FIELDS`."""

    owner: GangRef
    containers: tuple[Mapping[str, object], ...] = ()


_ACCEPTED_WITHIN = timedelta(seconds=5)
"""Time within which a kubelet accepts a pod that has been given its node."""
_REFUSED = frozenset({"UnexpectedAdmissionError"})
_NOT_STARTED = frozenset({"ContainerCreating", "CreateContainerError", "RunContainerError"})


class Pod(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    version: str
    owner_uid: str = ""
    owner_kind: str = ""
    """Kind of the owner, for example `Job`. The kind Job of another API group than `batch` has the group,
    too: `Job.batch.volcano.sh`."""
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: datetime | None = None
    scheduled_at: datetime | None = None
    """Time at which the pod was given its node, by the API server's clock."""
    admitted_at: datetime | None = None
    """Time at which the pod's kubelet accepted the pod, to start it or to refuse it."""
    deleting_since: datetime | None = None
    is_missed: bool = False
    """Whether the pod is gone and was never seen with a deletion time: a watch broke, and the next list
    lacked the pod. `deleting_since` is then the time at which the controller noticed."""
    deleting_until: datetime | None = None
    """Time at which the kubelet kills what still runs of the pod. The deleter of the pod chooses this time.
    It may be centuries ahead, beyond the range of time arithmetic: only compare it."""
    containers: tuple[Container, ...] = ()
    accelerators: int = 0
    has_claims: bool = False
    """Whether the pod has resource claims (DRA). The pod does not show which devices they mean."""
    requests: tuple[tuple[str, int], ...] = ()
    """Amounts of each accelerator resource that the pod takes on its node, as the scheduler counts them."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations of the pod, including those that admission added and that the job's template lacks."""
    priority: int = 0
    preempts: bool = True
    """Whether the scheduler evicts pods of lower priority for this pod."""
    grace_s: int = 30
    """Seconds that the pod may take to end, by its own spec."""
    gated: bool = False
    unschedulable: str = ""
    """The scheduler's message while the pod has no place."""
    failure: str = ""
    """Why the kubelet ended or refused the pod as a whole, for example `Evicted: ...`. The end of a single
    container is more specific."""
    volumes: tuple[Volume, ...] = ()
    environments: tuple[str, ...] = ()
    """ConfigMaps that all of the pod's containers with accelerators (all containers if none has any) read by
    envFrom."""
    unhealthy: tuple[UnhealthyDevice, ...] = ()
    """The pod's devices that its kubelet reports as not healthy."""
    outsider: Outsider | None = None

    @property
    def was_rank_until(self) -> datetime | None:
        """The last time at which a deleted pod was certainly a rank; None if it was none. If the deletion was
        missed, only the start of the pod is certain. The node's clock dates the start, and may be wrong by
        minutes, so the start counts as at most `_ACCEPTED_WITHIN` after the pod was given its node."""
        if not self.is_missed:
            return self.deleting_since
        if self.admitted_at is None or self.scheduled_at is None:
            return self.admitted_at
        return min(max(self.admitted_at, self.scheduled_at), self.scheduled_at + _ACCEPTED_WITHIN)

    @property
    def not_started(self) -> str:
        """Why the kubelet has not started the pod on its node, in one word of the kubelet. Empty if it has,
        or if the reason is in the pod's own template, for example an image that does not exist."""
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
        """Whether the pod has accelerators, or claims that may be for any device."""
        return self.accelerators > 0 or self.has_claims

    @property
    def ended(self) -> bool:
        """Whether the pod is terminal with all containers ended: nothing of it runs any more.

        A Job keeps its Failed pods, so waiting for the deletion of every old pod would never end.
        """
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED) and not any(
            c.running for c in self.containers
        )

    def had_ended(self, before: datetime) -> bool:
        """Whether the pod had certainly ended before that time. A job may keep its pods for days. A pod whose
        end is unknown may have ended just now."""
        ends = [container.finished_at for container in self.containers]
        return self.ended and bool(ends) and all(end is not None and end < before for end in ends)


class Bystander(msgspec.Struct, frozen=True):
    """A pod that is no rank, and that a reboot of its node would end. Kept only in mode repair."""

    namespace: str
    name: str
    uid: str
    node: str
    deleting: bool = False
