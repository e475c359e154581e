"""What is read of a job beside what a recovery needs of it: limits, deadlines, grace, gates. Pure.

Of look.py's objects and of manifests; the checks read it. What is not given is what the API server or the
framework puts there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from detectors.text.strict import convert
from recover.workloads import Workload
from recover.workloads.kubeflow import KubeflowJob

__all__ = [
    "FailureRule",
    "JobSetSpec",
    "JobSpec",
    "KubeflowSpec",
    "PodTemplate",
    "Spec",
    "spec_of",
    "template_field",
    "templates",
]


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Toleration(_Camel, frozen=True):
    key: str = ""
    operator: str = "Equal"


class Gate(_Camel, frozen=True):
    name: str = ""


class TemplateMeta(_Camel, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Variable(_Camel, frozen=True):
    name: str = ""
    value: str = ""


class ConfigMapRef(_Camel, frozen=True):
    name: str = ""


class Source(_Camel, frozen=True):
    config_map_ref: ConfigMapRef = ConfigMapRef()


class Resources(_Camel, frozen=True):
    requests: dict[str, int | float | str] = {}
    limits: dict[str, int | float | str] = {}
    claims: list[Any] = []


class Container(_Camel, frozen=True):
    """Also what others read from the raw containers: here it is checked."""

    name: str = ""
    env: list[Variable] = []
    env_from: list[Source] = []
    resources: Resources = Resources()


class PodSpec(_Camel, frozen=True):
    containers: list[Container] = []
    termination_grace_period_seconds: int = 30
    scheduling_gates: list[Gate] = []
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class PodTemplate(_Camel, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class ExitCodes(_Camel, frozen=True):
    operator: str = "In"
    values: list[int] = []


class FailureRule(_Camel, frozen=True):
    action: str = ""
    on_exit_codes: ExitCodes | None = None


class PodFailurePolicy(_Camel, frozen=True):
    rules: list[FailureRule] = []


class JobSpec(_Camel, frozen=True):
    """Of a Job, and of each Job that a JobSet makes."""

    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    pod_failure_policy: PodFailurePolicy = PodFailurePolicy()
    template: PodTemplate = PodTemplate()


class JobTemplate(_Camel, frozen=True):
    spec: JobSpec = JobSpec()


class ReplicatedJob(_Camel, frozen=True):
    name: str = ""
    template: JobTemplate = JobTemplate()
    depends_on: list[Any] = []


class JobSetRule(_Camel, frozen=True):
    action: str = ""


class JobSetPolicy(_Camel, frozen=True):
    max_restarts: int = 0
    rules: list[JobSetRule] = []


class JobSetSpec(_Camel, frozen=True):
    replicated_jobs: list[ReplicatedJob] = []
    failure_policy: JobSetPolicy | None = None
    ttl_seconds_after_finished: int | None = None


class RunPolicy(_Camel, frozen=True):
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None


class Replica(_Camel, frozen=True):
    restart_policy: str = "OnFailure"
    """The operator's default for PyTorchJob and PaddleJob."""
    template: PodTemplate = PodTemplate()


class KubeflowSpec(_Camel, frozen=True):
    field: str
    """What the kind calls its replicas."""
    replicas: dict[str, Replica]
    run_policy: RunPolicy = RunPolicy()


Spec = JobSpec | JobSetSpec | KubeflowSpec


class _Job(_Camel, frozen=True):
    spec: JobSpec = JobSpec()


class _JobSet(_Camel, frozen=True):
    spec: JobSetSpec = JobSetSpec()


class _Kubeflow(_Camel, frozen=True):
    spec: dict[str, Any] = {}


def spec_of(job: Mapping[str, Any], workload: Workload, file: str, where: str = "") -> Spec:
    """Of a job that its workload could read; `file` and `where` are for messages. Raises BadValueError."""
    if isinstance(workload, KubeflowJob):
        spec, field = convert(job, _Kubeflow, file=file, where=where).spec, workload.replica_specs
        replicas = {
            role: convert(replica, Replica, file=file, where=f"{where}: spec.{field}.{role}".lstrip(": "))
            for role, replica in spec.get(field, {}).items()
        }
        at = f"{where}: spec.runPolicy".lstrip(": ")
        policy = convert(spec.get("runPolicy", {}), RunPolicy, file=file, where=at)
        return KubeflowSpec(field=field, replicas=replicas, run_policy=policy)
    if workload.resource.kind == "JobSet":
        return convert(job, _JobSet, file=file, where=where).spec
    return convert(job, _Job, file=file, where=where).spec


def templates(spec: Spec) -> list[tuple[str, PodTemplate]]:
    """Each pod template, and the field in which it stands."""
    match spec:
        case JobSpec():
            found = {"": spec.template}
        case JobSetSpec():
            found = {one.name: one.template.spec.template for one in spec.replicated_jobs}
        case KubeflowSpec():
            found = {role: one.template for role, one in spec.replicas.items()}
        case _:
            assert_never(spec)
    return [(template_field(spec, name), template) for name, template in found.items()]


def template_field(spec: Spec, name: str) -> str:
    """Where the template of that name stands; names are those of Gang.templates."""
    match spec:
        case JobSpec():
            return "spec.template"
        case JobSetSpec():
            return f"spec.replicatedJobs[{name}].template.spec.template"
        case KubeflowSpec():
            return f"spec.{spec.field}.{name}.template"
        case _:
            assert_never(spec)
