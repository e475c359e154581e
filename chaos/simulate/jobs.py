"""The training jobs of a simulation: manifests, and what ranks and scan pods do in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.kinds import Object
from chaos.cluster.virtual_runtime import VirtualTraining
from chaos.job_objects import indexed_job, pytorchjob, resume_source
from recover.checkpoints.model import Checkpoint, ScanMessage, encode_message

__all__ = ["NAMESPACE", "Gang", "Job", "Kind", "Scan", "Storage", "manifest"]

NAMESPACE = "ml"
_ENDLESS_STEPS = 10**9


class Kind(Enum):
    PYTORCHJOB = "pytorchjob"
    JOB = "job"


class Storage(Enum):
    """Where checkpoints lie; it decides what a dead node's pods may still write to."""

    SCRATCH = "emptyDir"
    CLAIM = "persistentVolumeClaim"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "llm"
    kind: Kind = Kind.PYTORCHJOB
    ranks: int = 4
    opted_in: bool = True
    storage: Storage = Storage.SCRATCH
    scanned: bool = False
    """Its annotation says where the checkpoints lie."""
    step_s: float = 5.0
    steps: int = _ENDLESS_STEPS
    policy: str = "OnFailure"
    backoff_limit: int = 6
    """Of a Job: failed pods beyond this many fail it for good; of a PyTorchJob the policy Never does."""
    annotations: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []


def manifest(job: Job) -> Object:
    """The object that a user would apply."""
    annotations = dict(job.annotations)
    if job.scanned:
        annotations["rekindle.dev/checkpoint"] = "/checkpoints"
    metadata: Object = {"name": job.name, "namespace": NAMESPACE, "annotations": annotations}
    if job.opted_in:
        metadata["labels"] = {"rekindle.dev/auto-recovery": "enabled", "team": "research"}
    spec = _pod_spec(job)
    if job.kind is Kind.PYTORCHJOB:
        return pytorchjob(metadata, spec, ranks=job.ranks, policy=job.policy)
    spec["containers"][0]["envFrom"] = [resume_source(job.name, job.kind.value)]
    return indexed_job(metadata, spec, ranks=job.ranks, backoff_limit=job.backoff_limit)


def _pod_spec(job: Job) -> Object:
    sources: dict[Storage, Object] = {
        Storage.SCRATCH: {"emptyDir": {}},
        Storage.CLAIM: {"persistentVolumeClaim": {"claimName": "checkpoints"}},
    }
    return {
        "containers": [
            {
                "name": "train",
                "image": "training",
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
            }
        ],
        "volumes": [{"name": "checkpoints", **sources[job.storage]}],
        "tolerations": job.tolerations,
    }


class Gang:
    """What the ranks of one job do. A story changes it while they run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.training = VirtualTraining(job.ranks, steps=job.steps, step_s=job.step_s)
        self.silent = False
        """New ranks run and print no step as long as this is so."""
        self.crashes_at_start = False

    @property
    def step(self) -> int:
        return self.training.step

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        if self.crashes_at_start:
            await asyncio.sleep(5.0)
            say("ValueError: shapes (4,8) and (16,) do not match")
            return Exit(1)
        if self.silent:
            say("loading the data set")
            while self.silent:
                await asyncio.sleep(10.0)
        return await self.training.run(run, say)


class Scan:
    """A checkpoint scan of a gang in virtual time: names its newest checkpoint."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        await asyncio.sleep(0.2)
        step = self._gang.training.checkpoint_step
        if step == 0:
            return Exit(0, message=encode_message(ScanMessage()).decode())
        chosen = Checkpoint(
            step=step, path=f"step-{step}", format="torch-dcp", complete=True, reason="", bytes=1
        )
        return Exit(0, message=encode_message(ScanMessage(chosen=chosen, found=1)).decode())
