"""The PaddleJob as its user would write it: train.py on a share of a GPU. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from chaos.cluster.job_objects import paddlejob, replica_index
from chaos.scenarios.manifests import CHECKPOINTS, CLAIM, NAMESPACE

__all__ = ["PROGRAM", "Training", "paddle_job"]

PROGRAM = Path(__file__).with_name("train.py")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Training(msgspec.Struct, frozen=True):
    """`devices` are the devices that each rank requests; auto_growth fails in each rank at step
    `conflict_at`."""

    devices: Mapping[str, str]
    conflict_at: int
    ranks: int = 2
    steps: int = 60
    checkpoint_every: int = 10
    step_time_s: float = 0.05


def paddle_job(training: Training, name: str, port: int, python: Path) -> dict[str, Any]:
    """Returns a job that has opted in. Two restarts without progress end the loop."""
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"rekindle.dev/auto-recovery": "enabled"},
        "annotations": {
            "rekindle.dev/checkpoint": f"{CHECKPOINTS};format=paddle",
            "rekindle.dev/attempts-per-cause": "2",
        },
    }
    return paddlejob(metadata, _pod(training, port, python), ranks=training.ranks)


def _pod(training: Training, port: int, python: Path) -> dict[str, Any]:
    """Returns the pod of a rank. training-operator passes the number of ranks but no rank numbers, so each
    rank takes its index."""
    return {
        "terminationGracePeriodSeconds": 2,
        "containers": [
            {
                "name": "paddle",
                "image": "paddle-training",
                "command": [str(python), str(PROGRAM)],
                "args": [
                    "--rank=$(INDEX)",
                    "--ranks=$(PADDLE_NNODES)",
                    f"--steps={training.steps}",
                    f"--checkpoint-dir={CHECKPOINTS}",
                    f"--checkpoint-every={training.checkpoint_every}",
                    f"--conflict-at={training.conflict_at}",
                    f"--step-time-s={training.step_time_s}",
                ],
                "env": [
                    replica_index(),
                    *({"name": key, "value": value} for key, value in ONE_THREAD.items()),
                ],
                "ports": [{"name": "master", "containerPort": port}],
                "resources": {"limits": dict(training.devices)},
                "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
            }
        ],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
