"""A gang of transformers' Trainer with DeepSpeed on real nodes: an Indexed Job with one rank per node, on
CPUs, with a tiny model. Its environment is that of chaos.rigs.framework_logs; the pods see the folders of
this environment."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos.rigs.framework_logs.environment import TORCH_FRAMEWORKS
from chaos.rigs.torch_training.environment import TORCH
from tests.cluster.cases import apply
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.faults.gang import SUBDOMAIN
from tests.cluster.gangs import CLAIM, MOUNT, NAMESPACE, VOLUME
from tests.cluster.images import BASE

__all__ = ["Event", "Gang", "create"]

SOURCE = Path(__file__).parents[3]
PROGRAM = "chaos.rigs.framework_logs.trainings.hf_trainer"
MASTER_PORT = "29500"


class Event(msgspec.Struct, frozen=True):
    """One event of the Trainer's own record: see chaos.rigs.framework_logs.truth."""

    at: datetime
    what: str
    step: int


class Gang(msgspec.Struct, frozen=True):
    """A gang that has opted in, with its own hang-timeout. `name` is the name of the job and of its folder on
    the volume."""

    name: str
    hang_timeout: str
    options: tuple[str, ...]
    """Options of the program."""
    ranks: int = 2
    environment: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """The gang's folder, as this machine sees it."""
        return VOLUME / self.name

    def truth(self, rank: int) -> list[Event]:
        lines = (self.folder / f"truth-{rank}").read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Event) for line in lines]


def create(cluster: Cluster, gang: Gang) -> None:
    gang.folder.mkdir(parents=True)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": gang.name,
            "namespace": NAMESPACE,
            "labels": {"rekindle.dev/auto-recovery": "enabled"},
            "annotations": {
                "rekindle.dev/hang-timeout": gang.hang_timeout,
                "rekindle.dev/checkpoint": f"{MOUNT}/{gang.name}/out;format=hf-trainer",
            },
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": gang.ranks,
            "parallelism": gang.ranks,
            "template": {"metadata": {"labels": {"app": SUBDOMAIN}}, "spec": _pod(gang)},
        },
    }
    apply(cluster, job)


def _pod(gang: Gang) -> dict[str, Any]:
    python, below = TORCH_FRAMEWORKS.interpreter(), TORCH.interpreter()
    folder = f"{MOUNT}/{gang.name}"
    # Only Kubernetes knows the index, and only here; the training replaces `env`, so that the training is the
    # first process.
    command = ["env", "RANK=$(JOB_COMPLETION_INDEX)", str(python), "-m", PROGRAM, f"--output={folder}/out"]
    command += [f"--truth={folder}/truth-$(JOB_COMPLETION_INDEX)", *gang.options]
    told = {
        "PYTHONPATH": str(SOURCE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(gang.ranks),
        "MASTER_ADDR": f"{gang.name}-0.{SUBDOMAIN}.{NAMESPACE}.svc.cluster.local",
        "MASTER_PORT": MASTER_PORT,
        **gang.environment,
    }
    shown = {
        "source": SOURCE,
        "environment": python.parents[1],
        "below": below.parents[1],
        "python": Path(sys.base_prefix),
    }
    mounts = [{"name": name, "mountPath": str(path), "readOnly": True} for name, path in shown.items()]
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in shown.items()]
    container = {
        "name": "train",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": command,
        "env": [{"name": name, "value": value} for name, value in told.items()],
        "resources": {"limits": {"nvidia.com/gpu": GPUS_PER_NODE}},
        "volumeMounts": [{"name": "checkpoints", "mountPath": MOUNT}, *mounts],
    }
    return {
        "subdomain": SUBDOMAIN,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}, *volumes],
    }
