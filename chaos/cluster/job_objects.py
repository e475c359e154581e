"""The frameworks' jobs as objects, each around the spec of its pods. Pure. Each manifest module defines what
its pods do."""

from __future__ import annotations

from typing import Any

__all__ = ["indexed_job", "jobset", "paddlejob", "pytorchjob", "replica_index", "resume_source", "tfjob"]

Object = dict[str, Any]


def pytorchjob(metadata: Object, pod: Object, *, ranks: int, policy: str = "OnFailure") -> Object:
    """Returns a PyTorchJob with a master, and with workers if there is more than one rank."""
    replica = {"restartPolicy": policy, "template": {"spec": pod}}
    replicas: Object = {"Master": {"replicas": 1, **replica}}
    if ranks > 1:
        replicas["Worker"] = {"replicas": ranks - 1, **replica}
    return _kubeflow("PyTorchJob", metadata, {"pytorchReplicaSpecs": replicas})


def paddlejob(metadata: Object, pod: Object, *, ranks: int) -> Object:
    """Returns a PaddleJob with a collective: workers only."""
    workers = {"replicas": ranks, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    return _kubeflow("PaddleJob", metadata, {"paddleReplicaSpecs": {"Worker": workers}})


def tfjob(metadata: Object, pod: Object, *, ranks: int) -> Object:
    """Returns a TFJob of workers only; worker 0 is the chief."""
    workers = {"replicas": ranks, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    return _kubeflow("TFJob", metadata, {"tfReplicaSpecs": {"Worker": workers}})


def _kubeflow(kind: str, metadata: Object, replicas: Object) -> Object:
    spec = {"runPolicy": {"suspend": False}, **replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}


def indexed_job(metadata: Object, pod: Object, *, ranks: int, backoff_limit: int = 6) -> Object:
    spec = {
        "completionMode": "Indexed",
        "completions": ranks,
        "parallelism": ranks,
        "backoffLimit": backoff_limit,
        "template": {"spec": {**pod, "restartPolicy": "Never"}},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def jobset(metadata: Object, pod: Object, *, ranks: int, max_restarts: int | None = None) -> Object:
    """Returns a JobSet with one Job for all ranks. Without `max_restarts` the JobSet has no failure policy: a
    failed Job then fails it permanently."""
    policy = {} if max_restarts is None else {"failurePolicy": {"maxRestarts": max_restarts}}
    job = {
        "parallelism": ranks,
        "completions": ranks,
        "backoffLimit": 0,
        "template": {"spec": {**pod, "restartPolicy": "Never"}},
    }
    replicated = [{"name": "ranks", "replicas": 1, "template": {"spec": job}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"suspend": False, "replicatedJobs": replicated, **policy},
    }


def replica_index() -> Object:
    """Returns the variable `INDEX` of a container: training-operator gives the workers of a PaddleJob or
    TFJob no ranks."""
    field = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    return {"name": "INDEX", "valueFrom": field}


def resume_source(job: str, kind: str = "job") -> Object:
    """Returns the entry of a container's `envFrom` that names the checkpoint from which to resume. The
    template of a Job cannot take the entry later, so the owner of the job adds it from the start."""
    return {"configMapRef": {"name": f"{job}-rekindle-{kind}", "optional": True}}
