"""Adapter for a kubeflow.org/v1 PaddleJob (training-operator v1). kubeflow.py describes its stop and start.

The ranks meet at the master, or at worker 0 if there is no master, and get their numbers there: the operator
sets PADDLE_MASTER, PADDLE_NNODES and PADDLE_JOB_ID. With a master the job is a parameter server and its
trainers, and the master's end is the job's end.

elasticPolicy creates no HorizontalPodAutoscaler and sets no variable, unlike a PyTorchJob's. An elastic
PaddleJob is therefore a gang of the replicas that it requests now; scaling keeps the old pods.
(training-operator 1.9.4, measured.)
"""

from __future__ import annotations

import msgspec

from recover.api.recipe_spec import Framework
from recover.k8s.kinds import PADDLEJOBS
from recover.workloads.kubeflow import KubeflowJob, KubeflowObject, KubeflowSpec, Replica

__all__ = ["PaddleJob"]

_REPLICAS = "paddleReplicaSpecs"


class _Spec(KubeflowSpec, frozen=True, kw_only=True):
    replicas: dict[str, Replica] = msgspec.field(name=_REPLICAS)


class PaddleJob(KubeflowJob):
    resource = PADDLEJOBS
    framework = Framework.PADDLE
    replica_specs = _REPLICAS
    decoder = msgspec.json.Decoder(KubeflowObject[_Spec])
