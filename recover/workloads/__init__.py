"""Adapters of the frameworks that Rekindle can stop and start: one file each, one line in WORKLOADS.

In: job objects as the API gives them.
Out: Gang views, and patches that stop, start and undo.
Touches: nothing: pure.
"""

from __future__ import annotations

import msgspec

from detectors.wire.resource import Resource
from recover.api import GangRef
from recover.model import Gang
from recover.policy.commands import target_of
from recover.workloads.base import Workload, outline_of
from recover.workloads.job import Job
from recover.workloads.jobset import JobSet
from recover.workloads.paddlejob import PaddleJob
from recover.workloads.patches import environment_of
from recover.workloads.pytorchjob import PyTorchJob
from recover.workloads.tfjob import TFJob

__all__ = [
    "WORKLOADS",
    "Workload",
    "environments_of_other_kinds",
    "outline_of",
    "resource_of",
    "started_by",
    "workload_if_known",
    "workload_of",
]

WORKLOADS: tuple[Workload, ...] = (PyTorchJob(), PaddleJob(), TFJob(), JobSet(), Job())


def resource_of(ref: GangRef) -> Resource:
    """Returns the resource of the kind that a reference names. Raises KeyError for a kind that only another
    version of Rekindle knows."""
    known = workload_if_known(ref)
    if known is None:
        raise KeyError(f"{ref.api_version} {ref.kind}")
    return known.resource


def workload_if_known(ref: GangRef) -> Workload | None:
    """Returns the adapter, or None for a kind that only another version of Rekindle knows."""
    kinds = {(w.resource.api_version, w.resource.kind): w for w in WORKLOADS}
    return kinds.get((ref.api_version, ref.kind))


def environments_of_other_kinds(ref: GangRef) -> frozenset[str]:
    """Returns the names that the job's ConfigMap would have if the job were of another kind. People write
    such a name by mistake."""
    kinds = (workload.resource.kind for workload in WORKLOADS)
    return frozenset(
        environment_of(msgspec.structs.replace(ref, kind=kind)) for kind in kinds if kind != ref.kind
    )


def workload_of(gang: Gang) -> Workload:
    return next(w for w in WORKLOADS if w.resource == gang.resource)


def started_by(ref: GangRef) -> str:
    """Returns the command with which a person ends the job's suspension. A kind that only another version of
    Rekindle knows is assumed to be like the others of its group."""
    group = ref.api_version.partition("/")[0]
    known = workload_if_known(ref) or next((w for w in WORKLOADS if w.resource.group == group), None)
    spec = known.suspending(False) if known is not None else {"suspend": False}
    patch = msgspec.json.encode({"spec": spec}).decode()
    return f"kubectl patch {target_of(ref)} --type merge -p '{patch}'"
