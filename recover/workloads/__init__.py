"""The frameworks that Rekindle can stop and start. A new one is one file here and one line below."""

from __future__ import annotations

from recover.model import Gang
from recover.workloads.base import Workload
from recover.workloads.job import Job
from recover.workloads.pytorchjob import PyTorchJob

__all__ = ["WORKLOADS", "Workload", "workload_of"]

WORKLOADS: tuple[Workload, ...] = (PyTorchJob(), Job())


def workload_of(gang: Gang) -> Workload:
    return next(w for w in WORKLOADS if w.resource == gang.resource)
