"""Reads what an independent observer sees of a cluster, with kubectl and in the API server's audit log.
Rekindle's own code reads none of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.install import SYSTEM, listed
from tests.control_plane.plane import AuditedWrite

__all__ = ["everything", "gang_objects", "node_marks", "our_writes_to_others"]

_OURS = f"system:serviceaccount:{SYSTEM}:"
_KUBERNETES = "node.kubernetes.io/"
_OUR_KINDS = {"incidents", "nodehealths", "recoveries", "recipes", "events"}


def gang_objects(cluster: Cluster) -> dict[str, object]:
    """Returns every job, pod and ConfigMap outside Rekindle's namespace, without the status that its
    controller or its kubelet writes, and the containers of each pod, which a restart would replace."""
    found = [*listed(cluster, "pytorchjobs"), *listed(cluster, "pods"), *listed(cluster, "configmaps")]
    return {
        f"{body['kind']} {body['metadata']['name']}": _without_status(body)
        for body in found
        if body["metadata"]["namespace"] != SYSTEM
    }


def _without_status(body: Mapping[str, Any]) -> object:
    meta = {k: v for k, v in body["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    containers = [c["containerID"] for c in body.get("status", {}).get("containerStatuses", [])]
    return {k: v for k, v in body.items() if k not in ("metadata", "status")}, meta, containers


def node_marks(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Returns what people and Rekindle may write on every node: labels, annotations, taints, the cordon.
    Kubernetes' own taints, which follow from the status and the cordon, are left out."""
    return {
        body["metadata"]["name"]: {
            "labels": body["metadata"]["labels"],
            "annotations": body["metadata"].get("annotations", {}),
            "taints": [t for t in body["spec"].get("taints", []) if not t["key"].startswith(_KUBERNETES)],
            "cordoned": body["spec"].get("unschedulable", False),
        }
        for body in listed(cluster, "nodes")
    }


def our_writes_to_others(cluster: Cluster, since: int) -> list[AuditedWrite]:
    """Returns what Rekindle's accounts have written, or tried to write, since that position of the audit log,
    except Rekindle's own kinds and its own namespace."""
    return [
        write
        for write in cluster.plane.audited(since)
        if write.user.username.startswith(_OURS)
        and write.object_ref.resource not in _OUR_KINDS
        and write.object_ref.namespace != SYSTEM
    ]


def everything(cluster: Cluster) -> set[str]:
    """Returns `KIND NAMESPACE/NAME` of all objects in the cluster, except objects that only report and
    objects that expire by themselves."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    passing = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses"}
    found = listed(cluster, ",".join(sorted(set(kinds) - passing)))
    return {
        f"{body['kind']} {body['metadata'].get('namespace', '')}/{body['metadata']['name']}" for body in found
    }
