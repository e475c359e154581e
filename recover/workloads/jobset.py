"""Adapter for a jobset.x-k8s.io/v1alpha2 JobSet.

A JobSet creates a batch/v1 Job for each replica, and creates all of them again when status.restarts grows. If
Rekindle raises this number, status.restartsCountTowardsMax stays the same, so the restart uses up none of the
failure policy's maxRestarts. The new Jobs neither wait because of failed pods nor treat any rank as ended.
The stop is therefore two writes. The first suspends the JobSet and sets the mark, which names the number of
restarts to reach; the second sets that number. Jobs that are created during the suspension are suspended too,
and accept the node affinity of the next start, which the JobSet's own template does not.

The JobSet controller acts on a failed Job about 1.2 s after the failure of its first pod. If the second write
comes earlier, the failure uses up no restart of a failure policy, and does not end a JobSet without a failure
policy. (JobSet 0.11, Kubernetes 1.36.3, measured.)

Jobs that wait for others by dependsOn are created after the start, from the template: only taints keep their
pods off a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import msgspec

from detectors.text.strict import convert
from recover.api import Requirement
from recover.k8s.bodies import builtins, merged
from recover.k8s.kinds import JOBS, JOBSETS
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodTemplate
from recover.model import Gang, Mark, Terminal
from recover.model.actions import Patch
from recover.model.job_views import queue_words, terminal_of
from recover.workloads.as_written import Camel, Hazard, Limit, Severity
from recover.workloads.as_written import PodTemplate as WrittenTemplate
from recover.workloads.base import Operator, Workload, gang_of
from recover.workloads.job import ON_FAILURE, WrittenJob, restarts_counted
from recover.workloads.patches import (
    START,
    STOP,
    avoiding,
    changes_affinity,
    gang_patch,
    lifted,
    reading_environment,
    recreated_job,
    required_expressions,
)

__all__ = ["JobSet"]

_OWN_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
_COMPLETE = "Complete"
"""Status of a dependency that ends before the Jobs that wait for it begin. The other status is `Ready`."""


class _JobSpec(msgspec.Struct, rename="camel", frozen=True):
    parallelism: int = 1
    completions: int | None = None
    template: PodTemplate = PodTemplate()

    @property
    def pods(self) -> int:
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


class _JobTemplate(msgspec.Struct, frozen=True):
    spec: _JobSpec = _JobSpec()


class _Dependency(msgspec.Struct, frozen=True):
    name: str = ""
    status: str = ""


class _ReplicatedJob(msgspec.Struct, rename="camel", frozen=True):
    name: str
    replicas: int = 1
    template: _JobTemplate = _JobTemplate()
    depends_on: list[_Dependency] = []


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    replicated_jobs: list[_ReplicatedJob] = []
    suspend: bool = False
    managed_by: str = _OWN_CONTROLLER


class _Status(msgspec.Struct, rename="camel", frozen=True):
    conditions: list[ConditionView] = []
    terminal_state: str = ""
    restarts: int = 0


class _JobSet(msgspec.Struct, frozen=True):
    metadata: OwnedMeta
    spec: _Spec
    status: _Status = _Status()


class _WrittenTemplate(Camel, frozen=True):
    spec: WrittenJob = WrittenJob()


class _WrittenReplicatedJob(Camel, frozen=True):
    name: str = ""
    replicas: int = 1
    template: _WrittenTemplate = _WrittenTemplate()
    depends_on: list[Any] = []


class _WrittenRule(Camel, frozen=True):
    action: str = ""


class _WrittenPolicy(Camel, frozen=True):
    max_restarts: int = 0
    rules: list[_WrittenRule] = []


class _WrittenJobSet(Camel, frozen=True):
    replicated_jobs: list[_WrittenReplicatedJob] = []
    failure_policy: _WrittenPolicy | None = None
    ttl_seconds_after_finished: int | None = None

    elastic_field: ClassVar[str] = ""

    @property
    def placed_late(self) -> str:
        if not any(one.depends_on for one in self.replicated_jobs):
            return ""
        return "Jobs that wait for others by dependsOn may be placed on a bad node"

    def templates(self) -> Mapping[str, WrittenTemplate]:
        return {one.name: one.template.spec.template for one in self.replicated_jobs}

    def template_field(self, name: str) -> str:
        return f"spec.replicatedJobs[{name}].template.spec.template"

    def ends_for_good(self, gang: Gang, recreate: str) -> Iterator[Hazard]:
        """Yields the hazard of a failure before the stop. Restarts by Rekindle are counted nowhere, if the
        stop comes before the JobSet controller acts."""
        policy = self.failure_policy
        final = (
            policy is None or policy.max_restarts == 0 or any(r.action == "FailJobSet" for r in policy.rules)
        )
        brittle = [
            one.name
            for one in self.replicated_jobs
            if one.template.spec.backoff_limit == 0
            or any(rule.action == "FailJob" for rule in one.template.spec.pod_failure_policy.rules)
        ]
        if final and brittle:
            yield Hazard(
                name="no-retry",
                severity=Severity.RISKS,
                what=f"the first failed pod of {', '.join(brittle)} makes its Job fail, and the failed "
                "Job makes the JobSet fail permanently",
                field="spec.failurePolicy.maxRestarts",
                value=str(policy.max_restarts) if policy else "",
                means="Rekindle must stop the JobSet within 1.2 s after the failure, otherwise the JobSet "
                "has failed. Rekindle is too late if its controller is restarting at that moment",
                fix="spec.failurePolicy: {maxRestarts: 10} (a new JobSet: the field cannot be changed); or "
                + recreate,
            )
        if final:
            others = [one for one in self.replicated_jobs if one.name not in brittle]
            yield from (hazard for one in others for hazard in _restarts(one, gang, recreate))

    def deadlines(self) -> Sequence[Limit]:
        return [
            Limit(
                f"spec.replicatedJobs[{one.name}].template.spec.activeDeadlineSeconds",
                one.template.spec.active_deadline_seconds,
            )
            for one in self.replicated_jobs
        ]

    def removal(self) -> Limit:
        return Limit("spec.ttlSecondsAfterFinished", self.ttl_seconds_after_finished)


def _restarts(job: _WrittenReplicatedJob, gang: Gang, recreate: str) -> Iterator[Hazard]:
    """Yields the hazard of Jobs that fail when the restarts of their containers reach their backoffLimit.
    Each Job counts the restarts in its own pods."""
    spec, ranks = job.template.spec, gang.templates[job.name].count // max(job.replicas, 1)
    if spec.template.spec.restart_policy != ON_FAILURE or spec.backoff_limit > ranks:
        return
    field = f"spec.replicatedJobs[{job.name}].template.spec.backoffLimit"
    found = restarts_counted(spec.backoff_limit, ranks, recreate, field)
    yield msgspec.structs.replace(
        found,
        what=f"{found.what}, and the failed Job makes the JobSet fail permanently",
        fix=f"{found.fix} (a new JobSet: the field cannot be changed)",
    )


class _WrittenObject(Camel, frozen=True):
    spec: _WrittenJobSet = _WrittenJobSet()


class JobSet(Workload):
    resource = JOBSETS
    operator = Operator("JobSet", "jobset-controller-manager")
    pod_templates = ("spec", "replicatedJobs", "*", "template", "spec", "template")
    patches_status = True
    makes_jobs = True
    delays_starts = False
    reuses_names = False
    pod_label = "jobset.sigs.k8s.io/jobset-name"
    stops_at_once = False

    def parse(self, raw: bytes) -> Gang:
        jobset = msgspec.json.decode(raw, type=_JobSet)
        spec, jobs = jobset.spec, jobset.spec.replicated_jobs
        gang = gang_of(
            raw,
            jobset.metadata,
            self.resource,
            suspended=spec.suspend,
            terminal=_terminal(jobset.status),
            conditions=jobset.status.conditions,
            size=sum(job.replicas * job.template.spec.pods for job in jobs),
            templates={
                job.name: (job.template.spec.template.spec, job.replicas * job.template.spec.pods)
                for job in jobs
            },
        )
        other = f"controller {spec.managed_by}" if spec.managed_by != _OWN_CONTROLLER else ""
        after = _after(jobs)
        return msgspec.structs.replace(
            gang,
            templates={
                name: msgspec.structs.replace(one, after=after[name]) for name, one in gang.templates.items()
            },
            foreign_owner=gang.foreign_owner or other,
            unsupported=_queues(jobs),
            parts=sum(job.replicas for job in jobs if not job.depends_on),
            restarts=jobset.status.restarts,
        )

    def written(self, job: Mapping[str, Any], file: str, where: str) -> _WrittenJobSet:
        return convert(job, _WrittenObject, file=file, where=where).spec

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        aimed = msgspec.structs.replace(mark, restarts=gang.restarts + 1)
        return [gang_patch(gang, STOP, self.suspending(True), aimed)]

    def unfinished(self, gang: Gang) -> list[Patch]:
        """Returns the patch that sets the number of restarts that the mark names, unless the JobSet has
        already reached it by itself."""
        if gang.mark is None or gang.mark.restarts != gang.restarts + 1:
            return []
        return [
            Patch(
                what="renew-jobs",
                resource=gang.resource,
                namespace=gang.ref.namespace,
                name=gang.ref.name,
                uid=gang.ref.uid,
                version=gang.version,
                subresource="status",
                body={"status": {"restarts": gang.mark.restarts}},
            )
        ]

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        """Whether all Jobs were created again and wait: no old Job is left, and no Job would start without
        affinity."""
        waiting = [p for p in parts if p.restarts == gang.restarts and p.suspended and not p.deleting]
        return not self.unfinished(gang) and len(waiting) == len(parts) == gang.parts

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        moved = [_kept_off(part, gang, mark) for part in parts] if changes_affinity(gang, mark) else []
        ours = msgspec.structs.replace(
            mark,
            avoided=tuple(sorted({*mark.avoided, *_in_template(gang)})),
            placed=(*mark.placed, *(one for one in _asked_in_template(gang) if one not in mark.placed)),
        )
        return [*moved, gang_patch(gang, START, {"suspend": False}, ours)]

    def lift(self, gang: Gang) -> list[Patch]:
        """Removes the mark. The affinity of the JobSet's Jobs disappears with them at the next stop. If the
        JobSet was created again, its own template contains our requirements: the mark then stays, and the
        next start removes these requirements from each Job."""
        is_in_template = bool(_in_template(gang) or _asked_in_template(gang))
        return [] if gang.mark is None or is_in_template else [lifted(gang, {})]

    def recreated(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        """Returns the new JobSet. It may read our environment, and its own template may exclude nodes. The
        template gets no preferred affinity: a later start could not tell this preference from one that people
        wrote."""
        mark = msgspec.structs.replace(mark, suspected=())
        jobset = recreated_job(gang, [gang_patch(gang, START, {"suspend": False}, mark)])
        for job in jobset["spec"]["replicatedJobs"]:
            template = gang.templates[job["name"]]
            pod = job["template"]["spec"]["template"]["spec"]
            pod["containers"] = reading_environment(template.containers, gang)
            if changes_affinity(gang, mark):
                pod["affinity"] = merged(template.affinity, avoiding(template.affinity, gang, mark))
        return jobset


def _after(jobs: Sequence[_ReplicatedJob]) -> dict[str, tuple[str, ...]]:
    """Returns for each replicatedJob the replicatedJobs that must be complete before it begins, directly or
    because it waits for others to be ready. A replicatedJob may wait only for earlier ones."""
    found: dict[str, tuple[str, ...]] = {}
    for job in jobs:
        ready = (found.get(one.name, ()) for one in job.depends_on if one.status != _COMPLETE)
        complete = (one.name for one in job.depends_on if one.status == _COMPLETE)
        found[job.name] = tuple(dict.fromkeys([*complete, *chain.from_iterable(ready)]))
    return found


def _queues(jobs: Sequence[_ReplicatedJob]) -> str:
    """Returns which replicatedJobs work off a queue. A restart creates all Jobs again, so the work that such
    a Job had done would be lost."""
    specs = ((job.name, job.template.spec) for job in jobs)
    told = ((name, queue_words(spec.parallelism, spec.completions)) for name, spec in specs)
    return "; ".join(f"its replicatedJob {name} {words}" for name, words in told if words)


def _in_template(gang: Gang) -> set[str]:
    """Returns the hosts that the templates exclude because of us, since the JobSet was created again. The
    next start must remove them from each Job."""
    ours = set(gang.mark.avoided) if gang.mark else set()
    return ours & {name for template in gang.templates.values() for name in template.avoided}


def _asked_in_template(gang: Gang) -> list[Requirement]:
    """Returns the requirements on nodes that the templates have because of us, in the same way."""
    terms = [term for template in gang.templates.values() for term in required_expressions(template.affinity)]
    ours = gang.mark.placed if gang.mark else ()
    return [one for one in ours if any(builtins(one) in term for term in terms)]


def _kept_off(part: Gang, gang: Gang, mark: Mark) -> Patch:
    """Patches one Job of the gang with the affinity of its next start. The JobSet controller does not change
    that affinity."""
    affinity = avoiding(part.templates[""].affinity, gang, mark)
    return Patch(
        what="avoid-nodes",
        resource=JOBS,
        namespace=part.ref.namespace,
        name=part.ref.name,
        uid=part.ref.uid,
        version=part.version,
        body={"spec": {"template": {"spec": {"affinity": affinity}}}},
    )


def _terminal(status: _Status) -> Terminal | None:
    told = terminal_of(status.conditions, succeeded=("Completed",), failed=("Failed",))
    if told is not None or not status.terminal_state:
        return told
    return Terminal(succeeded=status.terminal_state == "Completed")
