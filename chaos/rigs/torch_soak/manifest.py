"""The PyTorchJob as its user would write it. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from chaos.cluster.job_objects import pytorchjob
from chaos.rigs.torch_training.launch import ENVIRONMENT, torchrun
from chaos.scenarios.manifests import CHECKPOINTS, CLAIM, NAMESPACE

__all__ = ["FINAL_WEIGHTS", "HANG_S", "Training", "torch_job"]

FINAL_WEIGHTS = "final-weights"
HANG_S = 15
"""Hang limit of the job in seconds. On a busy machine healthy ranks may pause for some seconds."""


class Training(msgspec.Struct, frozen=True):
    """A step takes some 40 ms. A save takes several steps, and less than the interval between two saves."""

    ranks: int
    steps: int
    checkpoint_every: int = 20
    step_time_s: float = 0.03
    slow_save_s: float = 0.3


def torch_job(training: Training, name: str, port: int, python: Path) -> dict[str, Any]:
    """Returns a job that has opted in, with the hang limit, and without a limit of attempts for one
    cause: random faults may strike one job several times before it has saved."""
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"rekindle.dev/auto-recovery": "enabled"},
        "annotations": {
            "rekindle.dev/checkpoint": f"{CHECKPOINTS};format=torch-dcp",
            "rekindle.dev/hang-timeout": f"{HANG_S}s",
            "rekindle.dev/attempts-per-cause": "100",
        },
    }
    return pytorchjob(metadata, _pod(training, port, python), ranks=training.ranks)


def _pod(training: Training, port: int, python: Path) -> dict[str, Any]:
    program = [
        f"--steps={training.steps}",
        f"--checkpoint-dir={CHECKPOINTS}",
        f"--checkpoint-every={training.checkpoint_every}",
        f"--step-time-s={training.step_time_s}",
        f"--slow-save-s={training.slow_save_s}",
        f"--output={CHECKPOINTS}/{FINAL_WEIGHTS}",
    ]
    command = torchrun(
        python,
        nodes=training.ranks,
        per_node=1,
        node="$(RANK)",
        address="$(MASTER_ADDR)",
        port="$(MASTER_PORT)",
        program=program,
    )
    return {
        "terminationGracePeriodSeconds": 2,
        "containers": [
            {
                "name": "pytorch",
                "image": "torch-training",
                "command": command,
                "env": [{"name": key, "value": value} for key, value in ENVIRONMENT.items()],
                "ports": [{"name": "pytorchjob-port", "containerPort": port}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
            }
        ],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
