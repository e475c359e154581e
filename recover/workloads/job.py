"""batch/v1 Job whose pods all live at once, mostly of completion mode Indexed.

Suspend is the uncounted restart: the pods' tracking finalizers go first, so none counts as failed. A Job that
has already counted failures delays its next start by 10 * 2^(n-1) s, whatever is done to it; its Failed pods
stay, and an index that has completed is never made again. FailureTarget is as final as Failed, and
SuccessCriteriaMet as Complete: only the pods still end, with a successPolicy by deletion. Node affinity may
be changed while it is suspended, env may not. (Kubernetes 1.36.3, measured.)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from detectors.wire.sane import sane
from recover.k8s.kinds import JOBS, JOBSETS
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodTemplate
from recover.model import Gang, Mark
from recover.model.actions import Patch
from recover.model.job_views import queue_words, terminal_of
from recover.workloads.base import StopsAtOnce, gang_of
from recover.workloads.patches import (
    avoiding,
    changes_affinity,
    gang_patch,
    lifted,
    made_anew,
    reading_environment,
)

__all__ = ["Job"]

_OWN_CONTROLLER = "kubernetes.io/job-controller"
_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
"""On a Job that a JobSet has made: the JobSet's number of restarts at that time."""
_SUCCEEDED, _FAILED = ("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")
_OF_THE_UID = frozenset({"controller-uid", "job-name"})


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    managed_by: str = _OWN_CONTROLLER
    success_policy: dict[str, object] | None = None
    template: PodTemplate = PodTemplate()

    @property
    def ranks(self) -> int:
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def queue(self) -> str:
        """Words for a Job whose pods do not all live at once; empty for a gang."""
        words = queue_words(self.parallelism, self.completions)
        return f"it {words}" if words else ""


class _Status(msgspec.Struct, rename="camel", frozen=True):
    conditions: list[ConditionView] = []
    failed: int = 0
    succeeded: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: datetime | None = None


class _Job(msgspec.Struct, frozen=True):
    metadata: OwnedMeta
    spec: _Spec
    status: _Status = _Status()


def _done(job: _Job) -> str:
    """Without completion mode Indexed, ranks have no number, and a Job that counts some makes fewer."""
    status, spec = job.status, job.spec
    if spec.completion_mode == "Indexed":
        return ",".join(filter(None, (status.completed_indexes, status.failed_indexes)))
    return f"{status.succeeded} of {spec.ranks}" if status.succeeded else ""


class Job(StopsAtOnce):
    resource = JOBS
    delays_starts = True
    reuses_names = False
    pod_label = "batch.kubernetes.io/job-name"

    def parse(self, raw: bytes) -> Gang:
        job = msgspec.json.decode(raw, type=_Job)
        status, owner = job.status, job.metadata.controller
        gang = gang_of(
            raw,
            job.metadata,
            self.resource,
            suspended=job.spec.suspend,
            terminal=terminal_of(status.conditions, succeeded=_SUCCEEDED, failed=_FAILED),
            size=job.spec.ranks,
            templates={"": (job.spec.template.spec, job.spec.ranks)},
            conditions=status.conditions,
            failures=status.failed,
            done_ranks=_done(job),
        )
        other = f"controller {job.spec.managed_by}" if job.spec.managed_by != _OWN_CONTROLLER else ""
        gang = msgspec.structs.replace(
            gang,
            started_at=sane(status.start_time),
            ends_by_success=job.spec.success_policy is not None,
            unsupported=job.spec.queue,
            foreign_owner=gang.foreign_owner or other,
        )
        if owner is None or owner.kind != JOBSETS.kind or not owner.api_version.startswith(JOBSETS.group):
            return gang
        attempt = job.metadata.labels.get(_RESTARTS, "")
        restarts = int(attempt) if attempt.isdecimal() else 0
        return msgspec.structs.replace(gang, part_of=owner.uid, restarts=restarts)

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [gang_patch(gang, "stop-gang", {"suspend": True}, mark)]

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        """Before Kubernetes 1.36 only a Job that was never started takes another affinity. So that it was is
        taken from its status first, and the start is the next look's."""
        is_first = gang.started_at is not None and changes_affinity(gang, mark)
        return [_without_its_start(gang) if is_first else _started(gang, mark)]

    def lift(self, gang: Gang) -> list[Patch]:
        """Its affinity may be changed only while it is suspended."""
        if gang.mark is None:
            return []
        if not (gang.mark.avoided or gang.mark.suspected):
            return [lifted(gang, {})]
        if not gang.suspended or gang.terminal is not None:
            return []
        plain = msgspec.structs.replace(gang.mark, avoided=(), suspected=())
        if gang.started_at is not None:
            return [_without_its_start(gang)]
        affinity = avoiding(gang.templates[""].affinity, gang, plain)
        return [lifted(gang, {"template": {"spec": {"affinity": affinity}}})]

    def anew(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        """Without the selector and labels that tie the pods to the old uid. A new Job may read our env."""
        containers = reading_environment(gang.templates[""].containers, gang)
        env = gang_patch(gang, "start-gang", {"template": {"spec": {"containers": containers}}}, mark)
        job = made_anew(gang, [_started(gang, mark), env])
        if not job["spec"].get("manualSelector"):
            job["spec"].pop("selector", None)
        labels = job["spec"]["template"].get("metadata", {}).get("labels", {})
        for name in [name for name in labels if name.removeprefix("batch.kubernetes.io/") in _OF_THE_UID]:
            del labels[name]
        return job


def _started(gang: Gang, mark: Mark) -> Patch:
    spec: dict[str, object] = {"suspend": False}
    if changes_affinity(gang, mark):
        affinity = avoiding(gang.templates[""].affinity, gang, mark)
        spec["template"] = {"spec": {"affinity": affinity}}
    return gang_patch(gang, "start-gang", spec, mark)


def _without_its_start(gang: Gang) -> Patch:
    """Its controller notes the next one."""
    return Patch(
        what="clear-start-time",
        resource=gang.resource,
        namespace=gang.ref.namespace,
        name=gang.ref.name,
        uid=gang.ref.uid,
        version=gang.version,
        subresource="status",
        body={"status": {"startTime": None}},
    )
