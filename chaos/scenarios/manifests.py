"""The training job of a scenario, as the object that a user would apply. Pure."""

from __future__ import annotations

import sys
from typing import Any

from chaos.cluster.job_objects import indexed_job, paddlejob, pytorchjob, replica_index, resume_source, tfjob
from chaos.scenarios.scenario import Job, JobKind

__all__ = ["CHECKPOINTS", "NAMESPACE", "training_job"]

NAMESPACE = "ml"
CHECKPOINTS = "/checkpoints"
CLAIM = "checkpoints"


def training_job(job: Job, name: str, port: int) -> dict[str, Any]:
    """Returns a job of the scenario's kind, with its checkpoints on the claim `checkpoints`. The job has the
    label of consent if the scenario says so."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "annotations": {"rekindle.dev/checkpoint": f"{CHECKPOINTS};format=rekindle-sharded"},
    }
    if job.opted_in:
        metadata["labels"] = {"rekindle.dev/auto-recovery": "enabled"}
    match job.kind:
        case JobKind.PYTORCHJOB:
            return _pytorchjob(job, metadata, port)
        case JobKind.PADDLEJOB:
            return _paddlejob(job, metadata, port)
        case JobKind.TFJOB:
            return _tfjob(job, metadata, port)
        case JobKind.JOB:
            return _indexed_job(job, metadata, port)


def _pytorchjob(job: Job, metadata: dict[str, Any], port: int) -> dict[str, Any]:
    return pytorchjob(metadata, _pod_spec(job, port, container="pytorch"), ranks=job.ranks)


def _paddlejob(job: Job, metadata: dict[str, Any], port: int) -> dict[str, Any]:
    """Returns a PaddleJob. There is no Paddle here that would assign ranks, so each worker takes its
    index."""
    spec = _pod_spec(job, port, container="paddle")
    container = spec["containers"][0]
    container["args"] += ["--world-size=$(PADDLE_NNODES)", "--rank=$(INDEX)", "--master-addr=127.0.0.1"]
    container["env"] = [replica_index()]
    return paddlejob(metadata, spec, ranks=job.ranks)


def _tfjob(job: Job, metadata: dict[str, Any], port: int) -> dict[str, Any]:
    """Returns a TFJob. The training here reads no TF_CONFIG, so each worker takes its index."""
    spec = _pod_spec(job, port, container="tensorflow")
    container = spec["containers"][0]
    container["args"] += [f"--world-size={job.ranks}", "--rank=$(INDEX)", "--master-addr=127.0.0.1"]
    container["env"] = [replica_index()]
    return tfjob(metadata, spec, ranks=job.ranks)


def _indexed_job(job: Job, metadata: dict[str, Any], port: int) -> dict[str, Any]:
    spec = _pod_spec(job, port, container="train")
    container = spec["containers"][0]
    container["args"] += [f"--world-size={job.ranks}", "--master-addr=127.0.0.1"]
    container["envFrom"] = [resume_source(metadata["name"])]
    return indexed_job(metadata, spec, ranks=job.ranks)


def _pod_spec(job: Job, port: int, *, container: str) -> dict[str, Any]:
    args = [
        f"--steps={job.steps}",
        f"--step-time-s={job.step_time_s}",
        f"--checkpoint-dir={CHECKPOINTS}",
        f"--checkpoint-every={job.checkpoint_every}",
        f"--shard-write-s={job.shard_write_s}",
        f"--master-port={port}",
    ]
    return {
        "terminationGracePeriodSeconds": 2,
        "containers": [
            {
                "name": container,
                "image": "rekindle-training",
                "command": [sys.executable, "-m", "chaos.training"],
                "args": args,
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
            }
        ],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
