"""batch/v1 Job with completion mode Indexed.

Suspend is the uncounted restart: the pods' tracking finalizers go first, so none counts as failed. A Job that
has already counted failures delays its next start by 10 * 2^(n-1) s, whatever is done to it; its Failed pods
stay. Node affinity may be changed while it is suspended, env may not. (Kubernetes 1.36.3, measured.)
"""

from __future__ import annotations

import msgspec

from recover.actions import Patch
from recover.model import Gang, Mark
from recover.resources import JOBS
from recover.workloads.base import (
    ConditionView,
    OwnedMeta,
    PodTemplate,
    avoiding,
    changes_affinity,
    gang_of,
    gang_patch,
    terminal_of,
)

__all__ = ["Job"]


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class _Status(msgspec.Struct, frozen=True):
    conditions: list[ConditionView] = []


class _Job(msgspec.Struct, frozen=True):
    metadata: OwnedMeta
    spec: _Spec
    status: _Status = _Status()


class Job:
    resource = JOBS

    def parse(self, raw: bytes) -> Gang:
        job = msgspec.json.decode(raw, type=_Job)
        return gang_of(
            job.metadata,
            self.resource,
            suspended=job.spec.suspend,
            terminal=terminal_of(job.status.conditions, succeeded="Complete", failed="Failed"),
            size=job.spec.parallelism,
            templates={"": job.spec.template.spec},
        )

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [gang_patch(gang, "stop-gang", {"suspend": True}, mark)]

    def start(self, gang: Gang, mark: Mark) -> list[Patch]:
        spec: dict[str, object] = {"suspend": False}
        if changes_affinity(gang, mark):
            affinity = avoiding(gang.templates[""].affinity, gang, mark)
            spec["template"] = {"spec": {"affinity": affinity}}
        return [gang_patch(gang, "start-gang", spec, mark)]
