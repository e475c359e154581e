"""Adapter for a batch/v1 Job whose pods all live at once, mostly of completion mode Indexed.

A suspension restarts the Job without using up its retries: the pods' tracking finalizers are removed first,
so no pod counts as failed. A Job that has already counted n failures delays its next start by 10 * 2^(n-1) s
(600 s at most), and nothing prevents that. The Job keeps its Failed pods, and never creates pods again for an
index that has completed.
FailureTarget is as final as Failed, and SuccessCriteriaMet as Complete: only the pods still have to end. If a
successPolicy has ended the Job, the Job controller deletes these pods. Node affinity may be changed while the
Job is suspended, env may not. (Kubernetes 1.36.3, measured.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from detectors.text.strict import convert
from detectors.wire.sane import sane
from recover.k8s.kinds import JOBS, JOBSETS
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodTemplate
from recover.model import Gang, Mark
from recover.model.actions import Patch
from recover.model.job_views import queue_words, terminal_of
from recover.workloads.as_written import Camel, Hazard, Limit, Severity, restarting
from recover.workloads.as_written import PodTemplate as WrittenTemplate
from recover.workloads.base import StopsAtOnce, Workload, gang_of
from recover.workloads.patches import (
    START,
    STOP,
    avoiding,
    changes_affinity,
    gang_patch,
    lifted,
    reading_environment,
    recreated_job,
)

__all__ = ["ON_FAILURE", "Job", "WrittenJob", "restarts_counted"]

_OWN_CONTROLLER = "kubernetes.io/job-controller"
_RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
"""Label on a Job that a JobSet has created: the JobSet's number of restarts at that time."""
_SUCCEEDED, _FAILED = ("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")
_OF_THE_UID = frozenset({"controller-uid", "job-name"})
_CRASHES = (1, 134, 137, 139)
"""Exit codes of a training whose GPU, memory or program has failed: an exception, SIGABRT, SIGKILL,
SIGSEGV."""
ON_FAILURE = "OnFailure"
_MADE_ANEW = "a Job that has failed permanently cannot be started again"


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
        """A clause about a Job whose pods do not all live at once; empty for a gang."""
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
    """Returns the ranks that have ended. Without completion mode Indexed, ranks have no number, and a Job
    that counts ended ranks creates fewer."""
    status, spec = job.status, job.spec
    if spec.completion_mode == "Indexed":
        return ",".join(filter(None, (status.completed_indexes, status.failed_indexes)))
    return f"{status.succeeded} of {spec.ranks}" if status.succeeded else ""


class _ExitCodes(Camel, frozen=True):
    operator: str = "In"
    values: list[int] = []


class FailureRule(Camel, frozen=True):
    action: str = ""
    on_exit_codes: _ExitCodes | None = None


class _PodFailurePolicy(Camel, frozen=True):
    rules: list[FailureRule] = []


class WrittenJob(Camel, frozen=True):
    """The spec of a Job, and of each Job that a JobSet creates."""

    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    pod_failure_policy: _PodFailurePolicy = _PodFailurePolicy()
    template: WrittenTemplate = WrittenTemplate()

    placed_late: ClassVar[str] = ""
    elastic_field: ClassVar[str] = ""

    def templates(self) -> Mapping[str, WrittenTemplate]:
        return {"": self.template}

    def template_field(self, name: str) -> str:
        return "spec.template"

    def ends_for_good(self, gang: Gang, recreate: str) -> Iterator[Hazard]:
        yield from _retries(self, gang, recreate)
        for number, rule in enumerate(self.pod_failure_policy.rules):
            if rule.action in ("FailJob", "FailIndex"):
                yield _rule(number, rule, recreate)

    def deadlines(self) -> Sequence[Limit]:
        return [Limit("spec.activeDeadlineSeconds", self.active_deadline_seconds)]

    def removal(self) -> Limit:
        return Limit("spec.ttlSecondsAfterFinished", self.ttl_seconds_after_finished)


class _WrittenObject(Camel, frozen=True):
    spec: WrittenJob = WrittenJob()


class Job(StopsAtOnce, Workload):
    resource = JOBS
    pod_templates = ("spec", "template")
    patches_status = True
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

    def written(self, job: Mapping[str, Any], file: str, where: str) -> WrittenJob:
        return convert(job, _WrittenObject, file=file, where=where).spec

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [gang_patch(gang, STOP, self.suspending(True), mark)]

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        """Starts the Job. Before Kubernetes 1.36 the affinity may change only in a Job that was never
        started. The start time is therefore first removed from the status, and the next reconcile starts the
        Job."""
        is_first = gang.started_at is not None and changes_affinity(gang, mark)
        return [_without_its_start(gang) if is_first else _started(gang, mark)]

    def lift(self, gang: Gang) -> list[Patch]:
        """Removes what our last start has added. The affinity may be changed only while the Job is
        suspended."""
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

    def recreated(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        """Returns the new Job, without the selector and labels that tie the pods to the old uid. A new Job
        may read our environment."""
        containers = reading_environment(gang.templates[""].containers, gang)
        env = gang_patch(gang, START, {"template": {"spec": {"containers": containers}}}, mark)
        job = recreated_job(gang, [_started(gang, mark), env])
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
    return gang_patch(gang, START, spec, mark)


def _without_its_start(gang: Gang) -> Patch:
    """Removes the Job's start time; the Job controller records the next one."""
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


def _retries(job: WrittenJob, gang: Gang, recreate: str) -> Iterator[Hazard]:
    per_index, failures = job.backoff_limit_per_index, gang.failures
    if per_index is not None:
        if per_index == 0:
            yield Hazard(
                name="no-retry",
                severity=Severity.FAILS,
                what="the first failed pod of an index makes this index fail permanently",
                field="spec.backoffLimitPerIndex",
                value="0",
                means="Kubernetes creates no other pod for a completed rank, so the gang stays stopped",
                fix=recreate,
            )
    elif failures >= job.backoff_limit:
        counted = f" ({failures} failed pods are counted)" if failures else ""
        yield Hazard(
            name="no-retry",
            severity=Severity.FAILS,
            what=f"the next failed pod makes the Job fail permanently{counted}",
            field="spec.backoffLimit",
            value=str(job.backoff_limit),
            means=_MADE_ANEW,
            fix=f"{recreate}; or spec.backoffLimit: {job.backoff_limit + 6}",
        )
    elif job.template.spec.restart_policy == ON_FAILURE:
        yield restarts_counted(job.backoff_limit, gang.size, recreate)
    else:
        yield Hazard(
            name="retries-counted",
            severity=Severity.ADVICE,
            what=f"each failed pod counts against backoffLimit {job.backoff_limit}, and the count never "
            "decreases",
            field="spec.backoffLimit",
            value=str(job.backoff_limit),
            means="after each failed pod the Job waits longer before it creates new pods (10 s, 20 s, "
            "... 10 min), and when the limit is exceeded, the Job fails permanently. Rekindle creates such a "
            "Job again only if the job has the annotation that the fix names",
            fix=recreate,
        )


def restarts_counted(limit: int, ranks: int, recreate: str, field: str = "spec.backoffLimit") -> Hazard:
    """Returns the hazard of a Job whose failed containers the kubelet restarts. The Job controller adds up
    the restarts in the Job's pods, and fails the Job when the sum reaches the limit; new pods begin at 0.
    (pastBackoffLimitOnFailure in Kubernetes' job_controller.go.)"""
    at_once = limit <= ranks
    return Hazard(
        name="no-retry" if at_once else "retries-counted",
        severity=Severity.RISKS if at_once else Severity.ADVICE,
        what=f"each restart of a container counts against backoffLimit {limit}: with restartPolicy "
        f"{ON_FAILURE}, the Job fails permanently when the restarts in its pods add up to {limit}",
        field=field,
        value=str(limit),
        means=f"if one rank fails, {restarting(ranks)}"
        + (
            "; the Job may have failed before Rekindle can stop it"
            if at_once
            else f" of the {limit} that fail the Job. {_MADE_ANEW[0].upper()}{_MADE_ANEW[1:]}"
        ),
        fix=f"{recreate}; or {field}: {10 * ranks}" if at_once else recreate,
    )


def _rule(number: int, rule: FailureRule, recreate: str) -> Hazard:
    codes = rule.on_exit_codes
    said, crash = "on a condition of the pod", True
    if codes is not None:
        listed = ", ".join(map(str, codes.values))
        said = f"on exit codes {listed}" if codes.operator == "In" else f"on exit codes other than {listed}"
        crash = any((code in codes.values) == (codes.operator == "In") for code in _CRASHES)
    return Hazard(
        name="pod-failure-policy",
        severity=Severity.FAILS if crash else Severity.ADVICE,
        what=f"{rule.action} {said}",
        field=f"spec.podFailurePolicy.rules[{number}].action",
        value=rule.action,
        means="if a pod ends in this way, the Job fails at once and permanently, whatever the cause; "
        + _MADE_ANEW,
        fix=f"{recreate}; or without that rule",
    )
