"""The objects of the cluster that a bench lays out, as the bench sends them to an API server, and as the API
server would store them. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from chaos.bench.ours import NAMESPACE
from chaos.bench.scale.size import Gang, Rank
from chaos.bench.throwaway import GPUS_PER_NODE
from chaos.cluster import job_objects
from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Fault,
    Finding,
    NodeHealthStatus,
    Origin,
    Severity,
    Source,
    Subject,
    SubjectKind,
    key,
)
from detectors.wire.resource import Resource
from detectors.wire.training import Edge, PodProgress
from recover.k8s.kinds import JOBS
from recover.model.agent_readiness import AGENT_LABELS

__all__ = [
    "LABEL",
    "NOTE",
    "finding",
    "health_status",
    "job",
    "node",
    "node_status",
    "other",
    "rank",
    "running",
    "steps",
    "stored",
    "uid_of",
]

Object = dict[str, Any]

LABEL = (key("bench"), "scale")
"""Label of the bench's nodes. The bench refuses a cluster with any node without this label."""
NOTE = key("bench-note")
"""Annotation by which the bench changes an object."""
_POOL = "node.kubernetes.io/instance-type"
_POOLS = 8
_LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def node(name: str, number: int) -> Object:
    labels = {LABEL[0]: LABEL[1], "kubernetes.io/hostname": name, _POOL: f"gpu-{number % _POOLS}"}
    return {"metadata": {"name": name, "labels": labels}}


def node_status(name: str, now: datetime) -> Object:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    at = _time(now)
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    good = {"Ready": "True"} | dict.fromkeys(pressures, "False")
    conditions = [
        {"type": kind, "status": status, "reason": "Bench", "lastTransitionTime": at, "lastHeartbeatTime": at}
        for kind, status in good.items()
    ]
    return {
        "allocatable": room,
        "capacity": room,
        "conditions": conditions,
        "nodeInfo": {"bootID": boot_of(name)},
    }


def boot_of(node_name: str) -> str:
    return uid_of("boot", node_name)


def health_status(
    node_name: str, now: datetime, *findings: Finding, steps: Iterable[PodProgress] = ()
) -> NodeHealthStatus:
    """Returns the status of an agent that reads the kernel log, the pods and the pods' logs."""
    rows = [
        Coverage(source=source, state=CoverageState.COVERED, since=now)
        for source in (Source.KMSG, Source.PODS, Source.LOGS)
    ]
    return NodeHealthStatus(
        boot_id=boot_of(node_name), coverage=rows, findings=list(findings), pods=list(steps)
    )


def steps(rank: Rank, uid: str, now: datetime) -> PodProgress:
    """Returns the progress of a rank whose log shows that it trains."""
    return PodProgress(
        uid=uid,
        namespace=NAMESPACE,
        name=rank.name,
        container="train",
        edge=Edge.STEPPING,
        at=now,
        first_step=1,
        first_step_at=now,
        last_step=2,
        last_step_at=now,
        median_step_s=1.0,
    )


def finding(node_name: str, now: datetime, *, severity: Severity = Severity.FATAL, count: int = 1) -> Finding:
    """Returns a finding: a GPU of the node has fallen off the bus. With a lower severity than fatal the
    finding is only a suspicion."""
    boot = boot_of(node_name)
    is_fatal = severity is Severity.FATAL
    return Finding(
        id=f"{boot[:8]}-kmsg-1",
        code="xid-79" if is_fatal else "xid-154",
        fault=Fault.DEVICE_LOST,
        origin=Origin.KERNEL,
        severity=severity,
        subject=Subject(kind=SubjectKind.DEVICE, pci="0000:3b:00.0"),
        boot_id=boot,
        first_seen=now,
        last_seen=now,
        final=True,
        sequence=1,
        count=count,
        evidence=_LINE,
    )


def job(gang: Gang) -> Object:
    metadata = {"name": gang.name, "namespace": NAMESPACE, "labels": {key("auto-recovery"): "enabled"}}
    return job_objects.indexed_job(metadata, _pod_spec(gang.ranks[0].gpus), ranks=len(gang.ranks))


def rank(one: Rank, job_uid: str, note: str = "") -> Object:
    owner = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": one.gang,
        "uid": job_uid,
        "controller": True,
    }
    labels = {
        "batch.kubernetes.io/controller-uid": job_uid,
        "batch.kubernetes.io/job-name": one.gang,
        "batch.kubernetes.io/job-completion-index": str(one.index),
    }
    metadata = {"name": one.name, "namespace": NAMESPACE, "ownerReferences": [owner], "labels": labels}
    if note:
        metadata["annotations"] = {NOTE: note}
    spec = {**_pod_spec(one.gpus), "nodeName": one.node, "restartPolicy": "Never"}
    return {"metadata": metadata, "spec": spec}


def other(name: str, node_name: str, note: str = "") -> Object:
    """Returns a pod without accelerators, which belongs to no gang."""
    metadata: Object = {"name": name, "namespace": NAMESPACE, "labels": {"app": "other"}}
    if note:
        metadata["annotations"] = {NOTE: note}
    return {"metadata": metadata, "spec": {**_pod_spec(0), "nodeName": node_name}}


def agent(node_name: str) -> Object:
    """Returns the pod of a node's agent, as the chart's DaemonSet creates it."""
    metadata: Object = {"name": f"agent-{node_name}", "namespace": "rekindle-system", "labels": AGENT_LABELS}
    return {"metadata": metadata, "spec": {**_pod_spec(0), "nodeName": node_name}}


def running(now: datetime) -> Object:
    """Returns the status of a pod that runs."""
    at = _time(now)
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": at,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds],
        "containerStatuses": [
            {
                "name": "train",
                "image": "none",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }
        ],
    }


def _pod_spec(gpus: int) -> Object:
    limits = {"cpu": "4", "memory": "32Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    names = ("NCCL_DEBUG", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CHECKPOINT_DIR")
    container = {
        "name": "train",
        "image": "none",
        "command": ["python", "-m", "train"],
        "env": [{"name": name, "value": "value"} for name in names],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    return {"containers": [container], "volumes": volumes, "automountServiceAccountToken": False}


def stored(resource: Resource, body: Object, version: int, now: datetime) -> bytes:
    """Returns the object as an API server would send it to a watch."""
    meta = body["metadata"]
    found = {
        "uid": uid_of(resource.kind, meta["name"]),
        "creationTimestamp": _time(now),
        "resourceVersion": str(version),
        **meta,
    }
    document = {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": found}
    return msgspec.json.encode(document)


def uid_of(kind: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}"))


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
