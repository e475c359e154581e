"""The kinds of object that the simulated API server serves. First stop of every request: store.py reads here
the name of a kind, whether it has a status subresource, its defaults, and which changes are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chaos.apiserver import admission
from detectors.wire.resource import Resource
from recover.k8s.kinds import (
    CONFIGMAPS,
    EVENTS,
    INCIDENTS,
    JOBS,
    JOBSETS,
    LEASES,
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PADDLEJOBS,
    PODS,
    PYTORCHJOBS,
    RECIPES,
    RECOVERIES,
    TFJOBS,
)
from recover.workloads import WORKLOADS

__all__ = ["CLAIMS", "KINDS", "Kind", "Object"]

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

Object = dict[str, Any]
"""One API object as plain JSON. Inside the store an object is never changed, only replaced."""


class Kind(msgspec.Struct, frozen=True):
    """`fill_in` completes a new object in place, as defaulting and admission do. `refuse` returns the field
    and the reason why a change (or a creation: `old` is None) is invalid, or None. `keeps_status`: a status
    at creation is kept (kubelets register their Node with one). `graceful`: deletion waits for the kubelet.
    `custom`: a CRD defines the kind, and stricter rules apply. `orphans`: a delete keeps what the object owns
    unless the delete says otherwise."""

    resource: Resource
    has_status: bool = True
    keeps_status: bool = False
    graceful: bool = False
    custom: bool = False
    orphans: bool = False
    fill_in: Callable[[Object], None] = admission.nothing
    refuse: Callable[[Object | None, Object], str | None] = admission.accept


ROLES = ("Master", "Worker")
TF_ROLES = ("Chief", *ROLES, "PS", "Evaluator")
"""Roles of a TFJob in the order of their ranks. They include the roles of a PyTorchJob or PaddleJob."""
KINDS: dict[Resource, Kind] = {
    kind.resource: kind
    for kind in (
        Kind(NODES, keeps_status=True, fill_in=admission.fill_in_node),
        Kind(NAMESPACES, fill_in=admission.fill_in_namespace),
        Kind(PODS, graceful=True, fill_in=admission.fill_in_pod, refuse=admission.refuse_pod),
        Kind(CONFIGMAPS, has_status=False),
        Kind(EVENTS, has_status=False),
        Kind(LEASES, has_status=False, refuse=admission.refuse_lease),
        Kind(CLAIMS),
        Kind(JOBS, orphans=True, fill_in=admission.fill_in_job, refuse=admission.refuse_job),
        Kind(
            PYTORCHJOBS,
            custom=True,
            refuse=admission.refuse_kubeflow("pytorchReplicaSpecs", *ROLES),
        ),
        Kind(
            PADDLEJOBS,
            custom=True,
            refuse=admission.refuse_kubeflow("paddleReplicaSpecs", *ROLES),
        ),
        Kind(TFJOBS, custom=True, refuse=admission.refuse_kubeflow("tfReplicaSpecs", *TF_ROLES)),
        Kind(JOBSETS, custom=True, refuse=admission.refuse_jobset),
        Kind(NODEHEALTHS, custom=True),
        Kind(INCIDENTS, custom=True),
        Kind(RECOVERIES, custom=True),
        Kind(RECIPES, custom=True),
    )
}
for _workload in WORKLOADS:
    # Each framework is served, even if it has no line above. A line adds defaults, and the changes to refuse.
    KINDS.setdefault(_workload.resource, Kind(_workload.resource, custom=True))
