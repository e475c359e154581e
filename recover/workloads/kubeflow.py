"""What the kinds of training-operator v1 (kubeflow.org/v1) share: replica specs, runPolicy and conditions.

Suspend is the uncounted restart: it deletes the pods, the failed ones too, and no status counts it. The
templates may be edited at any time and count for later pods, so the patch that starts a gang carries affinity
and the source of the environment too. New pods take the names of the old ones.

A rank that fails before the stop: under OnFailure, Always, and ExitCode from 128 the operator replaces its
pod, and the stop costs nothing (24 of 24). Under Never, and ExitCode below 128, it fails the job for good: of
the stops at once 7 of 12 were in time, 0.3 s later none of 12. Deleting pods fails a job of policy Never.
A gang of four on KWOK was gone 103 to 236 ms after the stop and ran 56 to 486 ms after the start.
(training-operator 1.9.4, PyTorchJob and PaddleJob alike, measured.)

Not every kind of the group may be stopped so: a TFJob fails when its pods are deleted. A kind is registered
once it has been measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from detectors.text.strict import convert
from detectors.wire.resource import Resource
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodTemplate
from recover.model import Gang, Mark, Template
from recover.model.actions import Patch
from recover.model.job_views import terminal_of
from recover.workloads.as_written import Camel, Hazard, Limit, Severity
from recover.workloads.as_written import PodTemplate as WrittenTemplate
from recover.workloads.base import Operator, StopsAtOnce, Workload, gang_of
from recover.workloads.patches import (
    avoiding,
    changes_affinity,
    gang_patch,
    lifted,
    made_anew,
    reading_environment,
)

__all__ = ["KubeflowJob", "KubeflowObject", "KubeflowSpec", "Replica"]

_OWN_CONTROLLER = "kubeflow.org/training-operator"
_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_FAILS_FOR_GOOD = {"Never": "any rank that fails", "ExitCode": "a rank that exits with 1 to 127"}
"""By restart policy of a role."""


class Replica(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class RunPolicy(msgspec.Struct, rename="camel", frozen=True):
    suspend: bool = False
    managed_by: str = _OWN_CONTROLLER
    """Whoever else stands here makes the pods; training-operator then does nothing, not even a stop."""


class ElasticPolicy(msgspec.Struct, rename="camel", frozen=True):
    min_replicas: int | None = None
    """Of the role Worker; with that many its launcher begins to train."""


class KubeflowSpec(msgspec.Struct, frozen=True, kw_only=True):
    replicas: dict[str, Replica]
    """By role. Each kind has its own name for this field."""
    run_policy: RunPolicy = msgspec.field(name="runPolicy", default=RunPolicy())
    elastic_policy: ElasticPolicy | None = msgspec.field(name="elasticPolicy", default=None)


class Status(msgspec.Struct, frozen=True):
    conditions: list[ConditionView] = []


Spec = TypeVar("Spec", bound=KubeflowSpec)


class KubeflowObject(msgspec.Struct, Generic[Spec], frozen=True):
    metadata: OwnedMeta
    spec: Spec
    status: Status = Status()


class _WrittenPolicy(Camel, frozen=True):
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None


class _WrittenReplica(Camel, frozen=True):
    restart_policy: str = "OnFailure"
    """The operator's default for PyTorchJob and PaddleJob."""
    template: WrittenTemplate = WrittenTemplate()


class _WrittenObject(Camel, frozen=True):
    spec: dict[str, Any] = {}


class _WrittenJob(Camel, frozen=True):
    field: str
    """What the kind calls its replicas."""
    replicas: dict[str, _WrittenReplica]
    run_policy: _WrittenPolicy = _WrittenPolicy()

    placed_late: ClassVar[str] = ""

    def templates(self) -> Mapping[str, WrittenTemplate]:
        return {role: one.template for role, one in self.replicas.items()}

    def template_field(self, name: str) -> str:
        return f"spec.{self.field}.{name}.template"

    def ends_for_good(self, failures: int, recreate: str) -> Iterator[Hazard]:
        for role, replica in self.replicas.items():
            if replica.restart_policy not in _POLICIES:
                field = f"spec.{self.field}.{role}.restartPolicy"
                yield Hazard(
                    name="restart-policy-unknown",
                    severity=Severity.FAILS,
                    what=f"restartPolicy {replica.restart_policy!r:.40} is none of {', '.join(_POLICIES)}",
                    field=field,
                    value=replica.restart_policy,
                    means="the API server or the training-operator may refuse the job",
                    fix=f"{field}: OnFailure",
                )
            what = _FAILS_FOR_GOOD.get(replica.restart_policy)
            if what is not None:
                field = f"spec.{self.field}.{role}.restartPolicy"
                yield Hazard(
                    name="no-retry",
                    severity=Severity.FAILS,
                    what=f"{what} makes the whole job fail permanently",
                    field=field,
                    value=replica.restart_policy,
                    means="the job has ended before Rekindle can stop it, and cannot be started again",
                    fix=f"{field}: OnFailure; or {recreate}",
                )
        if self.run_policy.backoff_limit == 0:
            yield Hazard(
                name="no-retry",
                severity=Severity.RISKS,
                what="the operator counts a failed pod against backoffLimit 0",
                field="spec.runPolicy.backoffLimit",
                value="0",
                means="the first failed rank may make the whole job fail permanently",
                fix=f"spec.runPolicy.backoffLimit: 100; or {recreate}",
            )

    def deadlines(self) -> Sequence[Limit]:
        return [Limit("spec.runPolicy.activeDeadlineSeconds", self.run_policy.active_deadline_seconds)]

    def removal(self) -> Limit:
        return Limit("spec.runPolicy.ttlSecondsAfterFinished", self.run_policy.ttl_seconds_after_finished)


class KubeflowJob(StopsAtOnce, Workload):
    """A kind says its resource, what its field of replicas is called, and what reads it."""

    resource: Resource
    replica_specs: str
    decoder: msgspec.json.Decoder[Any]
    delays_starts = False
    reuses_names = True
    pod_label = "training.kubeflow.org/job-name"
    operator = Operator("training-operator", "training-operator")
    start_brings_environment = True

    @property
    def pod_templates(self) -> tuple[str, ...]:
        return ("spec", self.replica_specs, "*", "template")

    def suspending(self, on: bool) -> dict[str, Any]:
        return {"runPolicy": {"suspend": on}}

    def written(self, job: Mapping[str, Any], file: str, where: str) -> _WrittenJob:
        spec, field = convert(job, _WrittenObject, file=file, where=where).spec, self.replica_specs
        replicas = {
            role: convert(
                replica, _WrittenReplica, file=file, where=f"{where}: spec.{field}.{role}".lstrip(": ")
            )
            for role, replica in spec.get(field, {}).items()
        }
        at = f"{where}: spec.runPolicy".lstrip(": ")
        policy = convert(spec.get("runPolicy", {}), _WrittenPolicy, file=file, where=at)
        return _WrittenJob(field=field, replicas=replicas, run_policy=policy)

    def parse(self, raw: bytes) -> Gang:
        job: KubeflowObject[KubeflowSpec] = self.decoder.decode(raw)
        replicas, policy = job.spec.replicas, job.spec.run_policy
        gang = gang_of(
            raw,
            job.metadata,
            self.resource,
            suspended=policy.suspend,
            terminal=terminal_of(job.status.conditions, succeeded=("Succeeded",), failed=("Failed",)),
            conditions=job.status.conditions,
            size=sum(replica.replicas for replica in replicas.values()),
            templates={role: (one.template.spec, one.replicas) for role, one in replicas.items()},
        )
        other = f"controller {policy.managed_by}" if policy.managed_by != _OWN_CONTROLLER else ""
        may_lack = _may_lack(job.spec)
        return msgspec.structs.replace(gang, foreign_owner=gang.foreign_owner or other, may_lack=may_lack)

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [gang_patch(gang, "stop-gang", self.suspending(True), mark)]

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        changes = {
            role: {"template": {"spec": _changed(template, gang, mark)}}
            for role, template in gang.templates.items()
        }
        spec = {**self.suspending(False), self.replica_specs: changes}
        return [gang_patch(gang, "start-gang", spec, mark)]

    def lift(self, gang: Gang) -> list[Patch]:
        """A change of the templates disturbs no pod that runs."""
        if gang.mark is None:
            return []
        plain = msgspec.structs.replace(gang.mark, avoided=(), suspected=())
        changes = {
            role: {"template": {"spec": {"affinity": avoiding(template.affinity, gang, plain)}}}
            for role, template in gang.templates.items()
        }
        is_changed = gang.mark.avoided or gang.mark.suspected
        return [lifted(gang, {self.replica_specs: changes} if is_changed else {})]

    def anew(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        return made_anew(gang, self.start(gang, mark))


def _may_lack(spec: KubeflowSpec) -> int:
    """Workers beyond those with which an elastic job trains."""
    workers, least = spec.replicas.get("Worker"), spec.elastic_policy and spec.elastic_policy.min_replicas
    return max(0, workers.replicas - least) if workers is not None and least else 0


def _changed(template: Template, gang: Gang, mark: Mark) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if template.containers:
        spec["containers"] = reading_environment(template.containers, gang)
    if changes_affinity(gang, mark):
        spec["affinity"] = avoiding(template.affinity, gang, mark)
    return spec
