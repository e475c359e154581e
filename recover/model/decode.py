"""Decodes API bytes into the views of the model. Pure; reads only the fields that a decision needs.

Other people's objects may contain anything: unknown fields are ignored, and an object that cannot be read
raises msgspec.MsgspecError, which runtime/cache.py reports and skips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from detectors.wire.contract import NodeHealth, ObjectMeta
from detectors.wire.fitting import limit
from detectors.wire.sane import demand_sane, sane
from recover.api import GangRef, Toleration
from recover.api.marks import OWN_CONDITION, QUARANTINE, RELEASED, RELEASED_FINDINGS
from recover.k8s import pod_specs
from recover.k8s.kinds import JOBS
from recover.k8s.pod_specs import ConditionView, OwnedMeta, Owner, PodSpec
from recover.k8s.quantities import parse_count
from recover.model import (
    Container,
    NamespaceView,
    Node,
    NodeSignal,
    Outsider,
    OwnCondition,
    Pod,
    PodPhase,
    Quarantine,
    Release,
    Taint,
    UnhealthyDevice,
    Waiting,
)
from recover.model.containers import FIELDS, training
from recover.model.job_views import volumes_of

__all__ = ["JOBSET_UID", "SignalReader", "is_accelerator", "namespace", "node", "outsider", "pod"]

JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
"""Label on a pod of a Job that a JobSet has created. It contains the uid of the JobSet, which stays when its
Jobs are created again."""
_HEALTH = msgspec.json.Decoder(NodeHealth)
_HUNDREDTHS = frozenset({"tencent.com/vcuda-core", "nvidia.com/mps-core"})
"""Resources of which 100 are one card. GPU-Manager documents this for its resource; Alauda's MPS plugin is
said to limit the share of a card in per cent."""

_PART = re.compile(
    r"nvidia\.com/mig-.*"
    r"|huawei\.com/(?:Ascend[0-9]{3}[A-Z]?|npu)-[0-9]{1,3}c(?:\.[0-9a-z]+)*"
    r"|huawei\.com/Ascend310P-(?:V|VPro|IPro)"
    r"|iluvatar\.ai/[A-Za-z0-9-]+-vgpu"
)
"""Names of parts of a device: a MIG profile; a template of a virtual NPU such as `Ascend910-12c.3cpu.32g`,
and the cards of a mixed Ascend 310P server (Ascend device plugin, pkg/common/constants.go); a share of an
Iluvatar chip as HAMi names it. HAMi's `huawei.com/Ascend910B4-memory` and `iluvatar.ai/BI-V150.vMem` count
memory, and match none."""
UNHEALTHY_MAX = 64
"""Maximum number of unhealthy devices that are kept for one pod."""

_Quantities = dict[str, str | int]
_Counts = dict[str, int]
"""Amounts of accelerator resources, by resource."""

_OF_EVERY_POD = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _NodeInfo(msgspec.Struct):
    boot_id: str = msgspec.field(name="bootID", default="")


class _NodeStatus(msgspec.Struct, rename="camel"):
    conditions: list[ConditionView] = []
    allocatable: dict[str, str | int] = {}
    capacity: dict[str, str | int] = {}
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)


class _Node(msgspec.Struct):
    metadata: OwnedMeta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


SignalReader = Callable[[OwnedMeta, Sequence[Taint], Sequence[ConditionView]], tuple[NodeSignal, ...]]
"""Reads the signals of other controllers in a Node's metadata, taints and conditions;
recover/policy/node_signals.py implements it."""


def node(
    raw: bytes,
    accelerators: tuple[str, ...],
    timed: Collection[str] = (),
    signals: SignalReader = lambda _meta, _taints, _conditions: (),
) -> Node:
    """Decodes a Node. `timed` are the labels for which the time of their last write is kept."""
    wire = msgspec.json.decode(raw, type=_Node)
    meta = wire.metadata
    ready = next((c for c in wire.status.conditions if c.type == "Ready"), None)
    allocatable = _counts(wire.status.allocatable, accelerators)
    capacity = _counts(wire.status.capacity, accelerators)
    release = _release(meta.annotations)
    return Node(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        created=sane(meta.creation_timestamp),
        labels=meta.labels,
        labelled_at=_labelled_at(meta, timed),
        annotations=meta.annotations,
        unschedulable=wire.spec.unschedulable,
        taints=wire.spec.taints,
        ready=ready is not None and ready.status == "True",
        ready_since=sane(ready.changed_at) if ready else None,
        boot_id=wire.status.node_info.boot_id,
        is_accelerated=any(
            is_accelerator(name, accelerators) for name in {**wire.status.allocatable, **wire.status.capacity}
        ),
        quarantine=_quarantine(meta.annotations.get(QUARANTINE, "")),
        released_at=_time(meta.annotations.get(RELEASED, "")),
        answered=release.findings if release is not None else None,
        released_from=release.incident if release is not None else "",
        # one mapping for both keeps nodes small
        allocatable=capacity if allocatable == capacity else allocatable,
        capacity=capacity,
        signals=signals(meta, wire.spec.taints, wire.status.conditions),
        told=_told_by_us(wire.status.conditions),
        accelerators=sum(_devices(capacity).values()),
    )


def _told_by_us(conditions: Sequence[ConditionView]) -> OwnCondition | None:
    found = next((one for one in conditions if one.type == OWN_CONDITION), None)
    return OwnCondition(found.status, found.reason, found.message) if found is not None else None


def _labelled_at(meta: OwnedMeta, timed: Collection[str]) -> dict[str, datetime]:
    told = {label: meta.labelled_at(label) for label in timed if label in meta.labels}
    return {label: at for label, at in told.items() if at is not None}


def health(raw: bytes) -> NodeHealth:
    """Decodes a NodeHealth. Raises msgspec.MsgspecError, also for insane values that the schema lets pass."""
    found = _HEALTH.decode(raw)
    demand_sane(found.status, "$.status")
    return found


def is_accelerator(resource: str, names: tuple[str, ...]) -> bool:
    """Whether the resource is an accelerator: one of the settings' `names`, or a part of a device."""
    return resource in names or _is_part(resource)


@lru_cache(maxsize=4096)
def _is_part(resource: str) -> bool:
    """Whether the resource is a part of a device. Such resources are too many for a list of names."""
    return _PART.fullmatch(resource) is not None


def _devices(counts: _Counts) -> _Counts:
    """Returns the number of accelerators by resource. A part of one accelerator counts as one."""
    return {name: -(-count // 100) if name in _HUNDREDTHS else count for name, count in counts.items()}


def _counts(quantities: _Quantities, names: tuple[str, ...]) -> _Counts:
    """Returns the accelerator resources among these. A quantity that is no whole number is left out. The API
    server writes 1000 as `1k`."""
    asked = {name: parse_count(str(one)) for name, one in quantities.items() if is_accelerator(name, names)}
    return {name: count for name, count in asked.items() if count is not None}


def _quarantine(text: str) -> Quarantine | None:
    """Returns our annotation, or None if people have garbled it. The taint then still shows that we have put
    the node into quarantine."""
    try:
        return msgspec.json.decode(text, type=Quarantine) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _release(annotations: Mapping[str, str]) -> Release | None:
    """Returns what the end of the last quarantine has answered. None if the annotation belongs to another end
    than `released-at`, or cannot be read."""
    try:
        release = msgspec.json.decode(annotations.get(RELEASED_FINDINGS, ""), type=Release)
        demand_sane(release)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return release if release.at == _time(annotations.get(RELEASED, "")) else None


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return sane(found) if found is not None and found.tzinfo is not None else None


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class _State(msgspec.Struct):
    running: dict[str, Any] | None = None
    terminated: _Terminated | None = None
    waiting: Waiting | None = None


class _ResourceHealth(msgspec.Struct):
    resource_id: str = msgspec.field(name="resourceID")
    health: str | None = None
    message: str | None = None


class _ResourceStatus(msgspec.Struct):
    """KEP-4680: the health of the devices that a container was given (Kubernetes 1.31 alpha, 1.36 beta and
    on)."""

    name: str
    resources: list[_ResourceHealth] | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    restart_count: int = 0
    allocated_resources_status: msgspec.Raw = msgspec.Raw()
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


_NOT_TOLD = ConditionView(type="PodScheduled", status="Unknown")


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: PodPhase = PodPhase.PENDING
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: list[ConditionView] = []
    container_statuses: list[_ContainerStatus] = []


class _InitContainer(pod_specs.Container, rename="camel", frozen=True):
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether the init container runs as long as the pod's containers."""
        return self.restart_policy == "Always"


class _PodSpec(msgspec.Struct, rename="camel", frozen=True):
    containers: list[pod_specs.Container] = []
    init_containers: list[_InitContainer] = []
    volumes: list[dict[str, Any]] = []
    tolerations: list[Toleration] = []
    resource_claims: list[msgspec.Raw] = []
    node_name: str = ""
    priority: int = 0
    preemption_policy: str = ""
    termination_grace_period_seconds: int = 30
    scheduling_gates: list[dict[str, str]] = []


class _Pod(msgspec.Struct):
    metadata: OwnedMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Outsider(msgspec.Struct):
    metadata: OwnedMeta
    spec: PodSpec = PodSpec()


_POD = msgspec.json.Decoder(_Pod)


def pod(raw: bytes, accelerators: tuple[str, ...]) -> Pod:
    wire = _POD.decode(raw)
    meta, owner, containers = wire.metadata, wire.metadata.controller, wire.spec.containers
    counts = [_counts(_asked(container), accelerators) for container in containers]
    trains = [c for c, own in zip(containers, counts, strict=True) if any(own.values())] or containers
    beside = {c.name for c in containers} - {c.name for c in trains}
    first = [(_counts(_asked(c), accelerators), c.is_sidecar) for c in wire.spec.init_containers]
    placed = next((c for c in wire.status.conditions if c.type == "PodScheduled"), _NOT_TOLD)
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid=_gang_uid(meta, owner),
        owner_kind=_owner_kind(owner) if owner is not None else "",
        node=wire.spec.node_name,
        phase=wire.status.phase,
        labels=meta.labels,
        annotations=meta.annotations,
        created=meta.creation_timestamp,
        scheduled_at=_told(placed.changed_at) if placed.status == "True" else None,
        admitted_at=_told(wire.status.start_time),
        deleting_since=meta.deleting_since,
        deleting_until=meta.deletion_timestamp,
        containers=tuple(_container(c, beside) for c in wire.status.container_statuses),
        accelerators=_devices_held(first, counts),
        has_claims=bool(wire.spec.resource_claims),
        requests=_shared(tuple(sorted(_held(first, counts).items()))),
        tolerations=_tolerations(wire.spec.tolerations),
        priority=wire.spec.priority,
        preempts=wire.spec.preemption_policy != "Never",
        grace_s=max(0, wire.spec.termination_grace_period_seconds),
        gated=bool(wire.spec.scheduling_gates),
        unschedulable=placed.message if placed.reason == "Unschedulable" else "",
        unhealthy=_unhealthy(wire.status.container_statuses),
        failure=": ".join(part for part in (wire.status.reason, wire.status.message) if part),
        volumes=volumes_of(wire.spec.volumes, containers),
        environments=_environments(trains),
    )


def _unhealthy(statuses: Sequence[_ContainerStatus]) -> tuple[UnhealthyDevice, ...]:
    """Returns the devices that are reported as `Unhealthy`. `Unknown` means that nobody can tell, for example
    while a device plugin is restarted. A part that cannot be read is skipped, and hides no other device of
    the pod."""
    found: dict[tuple[str, str], UnhealthyDevice] = {}
    for status in statuses:
        raw = bytes(status.allocated_resources_status)
        if b"Unhealthy" not in raw:  # almost every pod
            continue
        with suppress(msgspec.MsgspecError, RecursionError):
            for one in msgspec.json.decode(raw, type=list[_ResourceStatus]):
                for device in one.resources or ():
                    if device.health == "Unhealthy":
                        id_ = device.resource_id
                        found[one.name, id_] = UnhealthyDevice(one.name, id_, device.message or "")
    return tuple(found.values())[:UNHEALTHY_MAX]


def _devices_held(first: list[tuple[_Counts, bool]], containers: list[_Counts]) -> int:
    held = _held([(_devices(own), stays) for own, stays in first], [_devices(own) for own in containers])
    return sum(held.values())


def _held(first: list[tuple[_Counts, bool]], containers: list[_Counts]) -> _Counts:
    """Returns the amounts that the scheduler reserves for the pod, by resource. `first` are the init
    containers, each with whether it is a sidecar. Init containers run one after the other, before the
    containers. A sidecar among them stays, beside the later init containers and beside the containers.

    Each container costs only its own requests here: a pod may have thousands of containers, and thousands of
    resources.
    """
    stay: _Counts = {}
    most: _Counts = {}
    for own, is_sidecar in first:
        for name, amount in own.items():
            most[name] = max(most.get(name, 0), stay.get(name, 0) + amount)
        if is_sidecar:
            _add(stay, own)
    for own in containers:
        _add(stay, own)
    held = {name: max(amount, stay.get(name, 0)) for name, amount in {**stay, **most}.items()}
    return {name: amount for name, amount in held.items() if amount > 0}


def _add(amounts: _Counts, more: _Counts) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def _asked(container: pod_specs.Container) -> _Quantities:
    """Returns the container's quantities. For extended resources, limits replace requests."""
    return {**container.resources.requests, **container.resources.limits}


@lru_cache(maxsize=1024)
def _shared(requests: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Returns the same tuple for equal requests: most of 100,000 pods request the same, and share one
    tuple."""
    return requests


def _tolerations(tolerations: list[Toleration]) -> tuple[Toleration, ...]:
    """Returns the tolerations without those that every pod gets, for nodes that are not ready."""
    return _shared_tolerations(tuple(one for one in tolerations if one.key not in _OF_EVERY_POD))


@lru_cache(maxsize=1024)
def _shared_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tolerations


def outsider(raw: bytes) -> Outsider:
    """Reads the owner of a pod with accelerators that belongs to no gang. A pod without an owner is its own
    owner, and so is a pod whose owner has fields that are too long for our objects."""
    wire = msgspec.json.decode(raw, type=_Outsider)
    meta, owner = wire.metadata, wire.metadata.controller
    owner = owner if owner is not None and _has_room(owner) else None
    ref = GangRef(
        api_version=owner.api_version if owner else "v1",
        kind=owner.kind if owner else "Pod",
        namespace=meta.namespace,
        name=owner.name if owner else meta.name,
        uid=owner.uid if owner else meta.uid,
    )
    read = (
        {name: value for name, value in container.items() if name in FIELDS}
        for container in training(wire.spec.containers)
    )
    return Outsider(owner=ref, containers=tuple(read))


def _has_room(owner: Owner) -> bool:
    fields = ("api_version", "kind", "name", "uid")
    return all(len(getattr(owner, field)) <= limit(GangRef, field) for field in fields)


def _environments(trains: list[pod_specs.Container]) -> tuple[str, ...]:
    """Returns the ConfigMaps that every training container reads; other containers of the pod need not read
    them."""
    read = [container.environments for container in trains]
    return tuple(sorted(set.intersection(*read))) if read else ()


def _owner_kind(owner: Owner) -> str:
    """Returns the kind of the owner. A Job of another API group gets the group, too: Volcano has such a kind,
    and Rekindle does not restart its jobs."""
    group = owner.api_version.rpartition("/")[0]
    return f"{owner.kind}.{group}" if owner.kind == JOBS.kind and group != JOBS.group else owner.kind


def _gang_uid(meta: OwnedMeta, owner: Owner | None) -> str:
    """Returns the uid of the pod's gang: the pod's owner, or the JobSet above it. Labels are no easier to
    forge than owners."""
    if owner is None:
        return ""
    return meta.labels.get(JOBSET_UID, owner.uid) if _owner_kind(owner) == JOBS.kind else owner.uid


def _told(at: datetime | None) -> datetime | None:
    """Returns the time if it is a real one. A runtime's zero is 1970, and Go's is the year 1: neither shows
    when a container ended."""
    return sane(at) if at is not None and at.year > 1970 else None


def _container(status: _ContainerStatus, beside: Collection[str]) -> Container:
    ended = status.state.terminated or status.last_state.terminated
    return Container(
        name=status.name,
        running=status.state.running is not None,
        restarts=status.restart_count,
        exit_code=ended.exit_code if ended else None,
        reason=ended.reason if ended else "",
        message=ended.message if ended else "",
        finished_at=_told(ended.finished_at) if ended else None,
        waiting=status.state.waiting,
        beside=status.name in beside,
    )


class _Namespace(msgspec.Struct):
    metadata: ObjectMeta


def namespace(raw: bytes) -> NamespaceView:
    meta = msgspec.json.decode(raw, type=_Namespace).metadata
    return NamespaceView(meta.name, meta.labels, meta.annotations)
