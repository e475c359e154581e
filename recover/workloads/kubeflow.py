"""Base of the adapters for the kinds of training-operator v1 (kubeflow.org/v1). The kinds have replica specs,
runPolicy and conditions in common.

Rekindle restarts a job by a suspension, which deletes the pods, including failed ones. The operator does not
count it as a restart. The templates may be edited at any time and apply to later pods, so the patch that
starts a gang also carries the affinity and the source of the environment. New pods take the names of the old
ones.

If a rank fails before the stop, the result depends on the restart policy. Under OnFailure and Always, and
under ExitCode if the exit status is 128 or more, the operator replaces the pod, and the stop costs nothing
(24 of 24 stops). Under Never, and under ExitCode if the exit status is below 128, the operator fails the job
permanently: 7 of 12 stops were in time if they came at once, and none of 12 if they came 0.3 s later. With a
backoffLimit, the operator also fails the job permanently when the restarts of all containers in the running
pods reach this limit (PastBackoffLimit in pkg/core/job.go); new pods begin at 0. If pods are deleted, a job
of policy Never fails. A gang of four on KWOK was gone 103 to 236 ms after the stop and ran 56 to 486 ms after
the start. (training-operator 1.9.4, PyTorchJob and PaddleJob alike, measured.)

A kind of the group is registered once it has been measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from detectors.text.strict import convert
from detectors.wire.resource import Resource
from recover.k8s.json_patch import path_of
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodTemplate
from recover.model import Gang, Mark, Template
from recover.model.actions import Patch
from recover.model.job_views import terminal_of
from recover.workloads.as_written import Camel, Hazard, Limit, Severity, restarting
from recover.workloads.as_written import PodTemplate as WrittenTemplate
from recover.workloads.base import Operator, StopsAtOnce, Workload, gang_of
from recover.workloads.patches import (
    START,
    STOP,
    avoiding,
    changes_affinity,
    gang_patch,
    lifted,
    reading_environment,
    recreated_job,
    tested,
)

__all__ = ["KubeflowJob", "KubeflowObject", "KubeflowSpec", "Replica"]

_OWN_CONTROLLER = "kubeflow.org/training-operator"
_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_RESTARTS_IN_PLACE = ("Always", "OnFailure")
"""The restart policies under which the kubelet starts a failed container again in its pod."""
_FAILS_FOR_GOOD = {"Never": "any rank that fails", "ExitCode": "a rank that exits with 1 to 127"}
"""The ranks whose failure makes the job fail permanently, by restart policy of a role."""
_POLICY = path_of("spec", "runPolicy")
_ENDED = path_of("status", "completionTime")
"""Set with the condition Succeeded or Failed. In the rest of the status, decisions only read whether the
operator has taken up a start (`is_resuming`). The operator does not change a job that has ended, suspended or
not."""


class Replica(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class RunPolicy(msgspec.Struct, rename="camel", frozen=True):
    suspend: bool = False
    managed_by: str = _OWN_CONTROLLER
    """The controller that creates the pods. If the value names another controller, training-operator does
    nothing, not even a stop."""


class ElasticPolicy(msgspec.Struct, rename="camel", frozen=True):
    min_replicas: int | None = None
    """Number of replicas of the role Worker with which the launcher begins to train."""


class KubeflowSpec(msgspec.Struct, frozen=True, kw_only=True):
    replicas: dict[str, Replica]
    """Replicas by role. Each kind has its own name for this field."""
    run_policy: RunPolicy | None = msgspec.field(name="runPolicy", default=None)
    elastic_policy: ElasticPolicy | None = msgspec.field(name="elasticPolicy", default=None)

    @property
    def workers_min(self) -> int | None:
        """The smallest number of Workers with which the job trains; None if it needs all of them."""
        return self.elastic_policy.min_replicas if self.elastic_policy is not None else None


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
    restart_policy: str = ""
    """Restart policy of the role; empty if the owner has set none."""
    template: WrittenTemplate = WrittenTemplate()


class _WrittenObject(Camel, frozen=True):
    spec: dict[str, Any] = {}


class _WrittenJob(Camel, frozen=True):
    field: str
    """Name of the field with the replicas; each kind has its own."""
    replicas: dict[str, _WrittenReplica]
    run_policy: _WrittenPolicy = _WrittenPolicy()

    elastic_field: str = ""

    placed_late: ClassVar[str] = ""

    def templates(self) -> Mapping[str, WrittenTemplate]:
        return {role: one.template for role, one in self.replicas.items()}

    def template_field(self, name: str) -> str:
        return f"spec.{self.field}.{name}.template"

    def ends_for_good(self, gang: Gang, recreate: str) -> Iterator[Hazard]:
        for role, replica in self.replicas.items():
            if replica.restart_policy not in _POLICIES:
                field = f"spec.{self.field}.{role}.restartPolicy"
                yield Hazard(
                    name="role-restart-policy-unknown",
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
        limit = self.run_policy.backoff_limit
        ranks = sum(
            gang.templates[role].count
            for role, replica in self.replicas.items()
            if replica.restart_policy in _RESTARTS_IN_PLACE
        )
        if limit is not None and ranks and limit <= ranks:
            yield Hazard(
                name="no-retry",
                severity=Severity.RISKS,
                what="the training-operator adds up the restarts of all containers in the running pods, and "
                "makes the job fail permanently "
                f"{f'when the sum is {limit}' if limit else 'at the first restart'}",
                field="spec.runPolicy.backoffLimit",
                value=str(limit),
                means="Rekindle does not stop an elastic job when one rank fails, so the restarts add up"
                if gang.may_lack
                else f"if one rank fails, {restarting(ranks)}: the job may have failed before Rekindle can "
                "stop it",
                fix=f"remove spec.runPolicy.backoffLimit; or {recreate}",
            )

    def deadlines(self) -> Sequence[Limit]:
        return [Limit("spec.runPolicy.activeDeadlineSeconds", self.run_policy.active_deadline_seconds)]

    def removal(self) -> Limit:
        return Limit("spec.runPolicy.ttlSecondsAfterFinished", self.run_policy.ttl_seconds_after_finished)


class KubeflowJob(StopsAtOnce, Workload):
    """Base of one kind. A kind defines its resource, the name of its field of replicas, and the decoder of
    its objects."""

    resource: Resource
    replica_specs: str
    elastic_field = "spec.elasticPolicy"
    """Field by which a job of the kind trains with fewer ranks."""
    default_policy = "OnFailure"
    """Restart policy that the operator gives to a role without one."""
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
        read = {
            role: convert(
                replica, _WrittenReplica, file=file, where=f"{where}: spec.{field}.{role}".lstrip(": ")
            )
            for role, replica in spec.get(field, {}).items()
        }
        replicas = {
            role: msgspec.structs.replace(one, restart_policy=one.restart_policy or self.default_policy)
            for role, one in read.items()
        }
        at = f"{where}: spec.runPolicy".lstrip(": ")
        policy = convert(spec.get("runPolicy", {}), _WrittenPolicy, file=file, where=at)
        return _WrittenJob(
            field=field, replicas=replicas, run_policy=policy, elastic_field=self.elastic_field
        )

    def parse(self, raw: bytes) -> Gang:
        job: KubeflowObject[KubeflowSpec] = self.decoder.decode(raw)
        replicas, policy = job.spec.replicas, job.spec.run_policy or RunPolicy()
        gang = gang_of(
            raw,
            job.metadata,
            self.resource,
            suspended=policy.suspend,
            terminal=terminal_of(job.status.conditions, succeeded=("Succeeded",), failed=("Failed",)),
            conditions=job.status.conditions,
            size=sum(replica.replicas for replica in replicas.values()),
            templates={role: (one.template.spec, one.replicas) for role, one in replicas.items()},
            tests={_ENDED: None, **({_POLICY: None} if job.spec.run_policy is None else {})},
        )
        other = f"controller {policy.managed_by}" if policy.managed_by != _OWN_CONTROLLER else ""
        may_lack = _may_lack(job.spec)
        return msgspec.structs.replace(gang, foreign_owner=gang.foreign_owner or other, may_lack=may_lack)

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [self._tested(gang, gang_patch(gang, STOP, self.suspending(True), mark))]

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        changes = {
            role: {"template": {"spec": _changed(template, gang, mark)}}
            for role, template in gang.templates.items()
        }
        spec = {**self.suspending(False), self.replica_specs: changes}
        return [self._tested(gang, gang_patch(gang, START, spec, mark))]

    def _tested(self, gang: Gang, patch: Patch) -> Patch:
        """Adds tests to the patch. The operator writes a job's status several times when a rank fails, and
        when the gang stops and ends, so that every known version is outdated."""
        there = {(self.replica_specs,)} | ({("runPolicy",)} if _POLICY not in gang.tests else set())
        for role in gang.templates:
            there |= {(self.replica_specs, role, *rest) for rest in ((), ("template",), ("template", "spec"))}
        return tested(gang, patch, there)

    def lift(self, gang: Gang) -> list[Patch]:
        """Removes what our last start has added. A change of the templates does not disturb running pods."""
        if gang.mark is None:
            return []
        plain = msgspec.structs.replace(gang.mark, avoided=(), suspected=())
        changes = {
            role: {"template": {"spec": {"affinity": avoiding(template.affinity, gang, plain)}}}
            for role, template in gang.templates.items()
        }
        is_changed = gang.mark.avoided or gang.mark.suspected
        return [lifted(gang, {self.replica_specs: changes} if is_changed else {})]

    def recreated(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        return recreated_job(gang, self.start(gang, mark))


def _may_lack(spec: KubeflowSpec) -> int:
    """Returns by how many Workers an elastic job exceeds the smallest number with which it trains; 0 for any
    other job."""
    workers, least = spec.replicas.get("Worker"), spec.workers_min
    return max(0, workers.replicas - least) if workers is not None and least else 0


def _changed(template: Template, gang: Gang, mark: Mark) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if template.containers:
        spec["containers"] = reading_environment(template.containers, gang)
    if changes_affinity(gang, mark):
        spec["affinity"] = avoiding(template.affinity, gang, mark)
    return spec
