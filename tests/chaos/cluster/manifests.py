"""Manifests that the tests of the simulated cluster share."""

from __future__ import annotations

import sys
from typing import Any

Manifest = dict[str, Any]


def gpu_container(*command: str, **more: Any) -> Manifest:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    return {"name": "main", "image": "none", "command": list(command), "resources": resources, **more}


def python(program: str, *arguments: str, **more: Any) -> Manifest:
    return gpu_container(sys.executable, "-u", "-c", program, *arguments, **more)


def pod(name: str, container: Manifest | None = None, **spec: Any) -> Manifest:
    spec = {"restartPolicy": "Never", "containers": [container or gpu_container()], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def job(name: str, ranks: int, *, backoff_limit: int = 6, container: Manifest | None = None) -> Manifest:
    template = {"spec": {"restartPolicy": "Never", "containers": [container or gpu_container()]}}
    spec = {
        "parallelism": ranks,
        "completions": ranks,
        "completionMode": "Indexed",
        "backoffLimit": backoff_limit,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def pytorchjob(
    name: str, workers: int, *, policy: str = "OnFailure", container: Manifest | None = None
) -> Manifest:
    return _kubeflow("PyTorchJob", name, {"Master": 1, "Worker": workers}, policy, container)


def paddlejob(name: str, workers: int, *, policy: str = "OnFailure", masters: int = 0) -> Manifest:
    roles = {"Master": masters} if masters else {}
    return _kubeflow("PaddleJob", name, {**roles, "Worker": workers}, policy)


def tfjob(name: str, roles: dict[str, int], *, policy: str = "OnFailure") -> Manifest:
    return _kubeflow("TFJob", name, roles, policy)


def _kubeflow(
    kind: str, name: str, roles: dict[str, int], policy: str, container: Manifest | None = None
) -> Manifest:
    def replica(count: int) -> Manifest:
        template = {"spec": {"containers": [container or gpu_container()]}}
        return {"replicas": count, "restartPolicy": policy, "template": template}

    replicas = {role: replica(count) for role, count in roles.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {f"{kind.removesuffix('Job').lower()}ReplicaSpecs": replicas},
    }
