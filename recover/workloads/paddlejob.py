"""kubeflow.org/v1 PaddleJob (training-operator v1), stopped and started as kubeflow.py says.

Its ranks meet at the master, or where there is none at worker 0, and get their numbers there: the operator
tells them PADDLE_MASTER, PADDLE_NNODES and PADDLE_JOB_ID. With a master the job is a parameter server and its
trainers, and the master's end is the job's.

elasticPolicy makes no HorizontalPodAutoscaler and no variable, unlike a PyTorchJob's, so an elastic PaddleJob
is a gang of the replicas that it asks for now; whoever scales it keeps the old pods.
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
