"""The training jobs of a simulation: their manifests, and the behaviour of ranks and scan pods in virtual
time."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from chaos.apiserver.kinds import Object
from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.job_objects import indexed_job, jobset, pytorchjob, resume_source
from chaos.cluster.virtual_runtime import LINGERS_S
from chaos.simulated.reading import templates
from chaos.simulated.training import MARKER, Training
from recover.cli import checkpoints_command
from recover.recovery.scan_spec import MESSAGE_FILE, VOLUME

__all__ = [
    "DEVICES_ISSUE",
    "NAMESPACE",
    "OTHER_NAMESPACE",
    "OWNERS_ISSUE",
    "Gang",
    "Job",
    "Kind",
    "Scan",
    "Storage",
    "manifest",
]

NAMESPACE = "ml"
OTHER_NAMESPACE = "lab"
OWNERS_ISSUE = "CUDA error: device kernel image is invalid"
"""A known issue that only the job's owner can fix."""
DEVICES_ISSUE = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
"""Last words of a program whose device has failed."""
_ENDLESS_STEPS = 10**9


class Kind(Enum):
    PYTORCHJOB = "pytorchjob"
    JOB = "job"
    JOBSET = "jobset"


class Storage(Enum):
    """The place of the checkpoints. It decides where a dead node's pods may still write."""

    SCRATCH = "emptyDir"
    CLAIM = "persistentVolumeClaim"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "llm"
    id: str = ""
    """Key of the job in the simulation, if another job has the same name."""
    namespace: str = NAMESPACE
    kind: Kind = Kind.PYTORCHJOB
    ranks: int = 4
    opted_in: bool = True
    storage: Storage = Storage.SCRATCH
    scanned: bool = False
    """Whether the job's annotation names the place of the checkpoints, and its log reports each complete
    checkpoint."""
    step_s: float = 5.0
    steps: int = _ENDLESS_STEPS
    policy: str = "OnFailure"
    backoff_limit: int = 6
    """Number of failed pods of a Job above which the job fails permanently. A PyTorchJob fails permanently by
    the policy Never."""
    max_restarts: int | None = None
    """Number of restarts of a JobSet. None: the JobSet has no failure policy."""
    grace_s: int | None = None
    """Value of terminationGracePeriodSeconds of the pods."""
    lingers_s: float = 0.0
    """Seconds for which the ranks run after SIGTERM."""
    rendezvous_s: float = 0.0
    """Seconds for which starting ranks wait for the others. 0: without limit."""
    annotations: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []

    @property
    def key(self) -> str:
        return self.id or self.name


def manifest(job: Job) -> Object:
    """Returns the object that a user would apply."""
    annotations = dict(job.annotations)
    if job.scanned:
        annotations["rekindle.dev/checkpoint"] = f"/checkpoints;format=generic;marker={MARKER}"
    metadata: Object = {"name": job.name, "namespace": job.namespace, "annotations": annotations}
    if job.opted_in:
        metadata["labels"] = {"rekindle.dev/auto-recovery": "enabled", "team": "research"}
    spec = _pod_spec(job)
    if job.kind is Kind.PYTORCHJOB:
        return _lingering(pytorchjob(metadata, spec, ranks=job.ranks, policy=job.policy), job)
    spec["containers"][0]["envFrom"] = [resume_source(job.name, job.kind.value)]
    if job.kind is Kind.JOBSET:
        return _lingering(jobset(metadata, spec, ranks=job.ranks, max_restarts=job.max_restarts), job)
    return _lingering(indexed_job(metadata, spec, ranks=job.ranks, backoff_limit=job.backoff_limit), job)


def _lingering(manifest: Object, job: Job) -> Object:
    if job.lingers_s:
        for template in templates(manifest["spec"]):
            template["metadata"] = {"annotations": {LINGERS_S: f"{job.lingers_s:g}"}}
    return manifest


def _pod_spec(job: Job) -> Object:
    sources: dict[Storage, Object] = {
        Storage.SCRATCH: {"emptyDir": {}},
        Storage.CLAIM: {"persistentVolumeClaim": {"claimName": "checkpoints"}},
    }
    grace = {} if job.grace_s is None else {"terminationGracePeriodSeconds": job.grace_s}
    return {
        **grace,
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
    """The behaviour of the ranks of one job. A story changes it while the ranks run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.training = Training(
            job.ranks,
            steps=job.steps,
            step_s=job.step_s,
            start_s=10.0,
            rendezvous_s=job.rendezvous_s,
            tells_saves=job.scanned,
        )
        self.silent = False
        """Whether new ranks run and print no step."""
        self.crashes_at_start = False
        self.crashed = 0
        """Number of starts that ended since the program began to crash at its start."""
        self.blames_program = False
        """Whether the program has printed a known issue that only its owner can fix."""
        self._ends: list[tuple[float, int, int]] = []
        """Time of each failure, and the furthest step and the newest complete checkpoint at that time."""

    def record_failure(self, began_s: float = math.inf) -> bool:
        """Records that a rank which began at `began_s` ended by itself, or hangs. Returns False if that rank
        began before the last failure: then it is part of the same failure."""
        if self._ends and began_s < self._ends[-1][0]:
            return False
        now_s = asyncio.get_running_loop().time()
        self._ends.append((now_s, self.training.furthest, self.training.checkpoints.newest))
        return True

    @property
    def failures(self) -> int:
        """Number of failures since the gang last made a new step."""
        return sum(1 for _, furthest, _ in self._ends if furthest == self.training.furthest)

    @property
    def failures_from_one_checkpoint(self) -> int:
        """Number of failures since the newest checkpoint was complete, plus the failure before: the ranks
        that outlived that failure may have completed the checkpoint."""
        since = sum(1 for _, _, newest in self._ends if newest == self.training.checkpoints.newest)
        return min(since + 1, len(self._ends))

    @property
    def step(self) -> int:
        return self.training.step

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        began_s, step = asyncio.get_running_loop().time(), self.training.begins_at(run)
        if self.crashes_at_start:
            await asyncio.sleep(5.0)
            say("ValueError: shapes (4,8) and (16,) do not match")
            self.crashed += self.record_failure(began_s)
            return Exit(1)
        if self.silent:
            say("loading the data set")
            while self.silent:
                await asyncio.sleep(10.0)
        ended = await self.training.run(run, step, say)
        if ended.code and not self.training.gave_up(run.uid):
            self.record_failure(began_s)
        return ended


class Scan:
    """A checkpoint scan of a gang. It runs the production command on files laid out as the gang has left
    them."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        await asyncio.sleep(0.2)
        code, message = self._look(run.container["command"])
        return Exit(code, message=message)

    def _look(self, command: Sequence[str]) -> tuple[int, str]:
        """Runs the scan. The command begins with Rekindle's program and `checkpoints`."""
        with tempfile.TemporaryDirectory() as place:
            folder, said = Path(place, "checkpoints"), Path(place, "said")
            folder.mkdir()
            self._gang.training.checkpoints.lay_out(folder)
            here = {VOLUME: str(folder), MESSAGE_FILE: str(said)}
            code = checkpoints_command.run([here.get(part, part) for part in command[2:]])
            return code, said.read_text()
