"""Adapter for a kubeflow.org/v1 TFJob (training-operator v1). kubeflow.py describes its stop and start.

The roles are Chief or Master, Worker, PS (parameter server) and Evaluator; the operator sets TF_CONFIG. The
end of the chief, or of worker 0 if there is no chief, is the job's end.

Two things differ from the other kinds of the group. A role without a restart policy has the policy Never. And
a running pod that somebody deletes fails the job, whatever the policy, unless the job is suspended. With
enableDynamicWorker the job outlives the failure of a worker. (training-operator 1.9.4: SetDefaults_TFJob and
UpdateJobStatus.)
"""

from __future__ import annotations

import msgspec

from recover.api.recipe_spec import Framework
from recover.k8s.kinds import TFJOBS
from recover.workloads.kubeflow import KubeflowJob, KubeflowObject, KubeflowSpec, Replica

__all__ = ["TFJob"]

_REPLICAS = "tfReplicaSpecs"


class _Spec(KubeflowSpec, frozen=True, kw_only=True):
    replicas: dict[str, Replica] = msgspec.field(name=_REPLICAS)
    enable_dynamic_worker: bool = msgspec.field(name="enableDynamicWorker", default=False)

    @property
    def workers_min(self) -> int | None:
        return 1 if self.enable_dynamic_worker else None


class TFJob(KubeflowJob):
    resource = TFJOBS
    framework = Framework.TENSORFLOW
    replica_specs = _REPLICAS
    elastic_field = "spec.enableDynamicWorker"
    default_policy = "Never"
    decoder = msgspec.json.Decoder(KubeflowObject[_Spec])
