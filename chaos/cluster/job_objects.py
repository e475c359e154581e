"""The frameworks' jobs as objects, each around the spec of its pods. Pure; manifests say what the pods do."""

from __future__ import annotations

from typing import Any

__all__ = ["indexed_job", "jobset", "paddlejob", "pytorchjob", "replica_index", "resume_source"]

Object = dict[str, Any]


def pytorchjob(metadata: Object, pod: Object, *, ranks: int, policy: str = "OnFailure") -> Object:
    """A master, and workers where there is more than one rank."""
    replica = {"restartPolicy": policy, "template": {"spec": pod}}
    replicas: Object = {"Master": {"replicas": 1, **replica}}
    if ranks > 1:
        replicas["Worker"] = {"replicas": ranks - 1, **replica}
    return _kubeflow("PyTorchJob", metadata, {"pytorchReplicaSpecs": replicas})


def paddlejob(metadata: Object, pod: Object, *, ranks: int) -> Object:
    """A collective: workers only."""
    workers = {"replicas": ranks, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    return _kubeflow("PaddleJob", metadata, {"paddleReplicaSpecs": {"Worker": workers}})


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
    """One Job of all ranks. Without `max_restarts` it has no failure policy: a failed Job fails it for
    good."""
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
    """The variable `INDEX` of a container: the operator gives the workers of a PaddleJob no ranks."""
    field = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    return {"name": "INDEX", "valueFrom": field}


def resume_source(job: str, kind: str = "job") -> Object:
    """The entry of a container's `envFrom` by which it is told where to resume. A Job's template cannot take
    it later, so its author puts it in from the start."""
    return {"configMapRef": {"name": f"{job}-rekindle-{kind}", "optional": True}}
