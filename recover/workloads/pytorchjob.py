"""Adapter for a kubeflow.org/v1 PyTorchJob (training-operator v1). kubeflow.py describes its stop and
start.
"""

from __future__ import annotations

import msgspec

from recover.api.recipe_spec import Framework
from recover.k8s.kinds import PYTORCHJOBS
from recover.workloads.kubeflow import KubeflowJob, KubeflowObject, KubeflowSpec, Replica

__all__ = ["PyTorchJob"]

_REPLICAS = "pytorchReplicaSpecs"


class _Spec(KubeflowSpec, frozen=True, kw_only=True):
    replicas: dict[str, Replica] = msgspec.field(name=_REPLICAS)


class PyTorchJob(KubeflowJob):
    resource = PYTORCHJOBS
    framework = Framework.PYTORCH
    replica_specs = _REPLICAS
    decoder = msgspec.json.Decoder(KubeflowObject[_Spec])
