"""Checks whether resumed ranks will read the variables of a recovery. docs/environment.md lists the ways to
read them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from recover.doctor.case import Case, Finding, Severity
from recover.k8s.kinds import JOBSETS
from recover.k8s.pod_specs import Variable
from recover.policy.consent import OptIn, opt_in
from recover.snapshot.manifests import STANDARD_INPUT
from recover.workloads import environments_of_other_kinds, workload_of
from recover.workloads.patches import (
    asks_for_device,
    containers_without_environment,
    environment_name,
    old_environment_of,
    reads_environment,
    requires_environment,
)

__all__ = ["enabling", "optional", "own_variables", "read_by_ranks"]

_RESUME = frozenset({"REKINDLE_RESUME_FROM", "REKINDLE_RESUME_STEP"})
_OURS = "REKINDLE_"


def read_by_ranks(case: Case) -> Iterator[Finding]:
    """Reports containers that do not read the ConfigMap of a recovery. Some kinds get the envFrom in the
    patch that starts them. For the other kinds the pods show whether they have the envFrom; if there are no
    pods, the policy that will add the envFrom counts. If no container of a template requests a device, each
    of them may be the one that trains."""
    gang = case.gang
    if reads_environment(gang) or workload_of(gang).start_brings_environment:
        return
    name = environment_name(gang)
    served = {name, old_environment_of(gang.ref)}
    if case.pods and all(served.intersection(pod.environments) for pod in case.pods):
        return
    if not case.pods and case.adds_environment and _pods_consent(case):
        return
    unknown = not case.pods and case.adds_environment is None
    unless = (
        "; if your cluster has the policy rekindle-environment, which this command cannot see, the policy "
        "adds it to the pods"
        + (" if the namespace or the pod template has the consent" if gang.ref.kind == JOBSETS.kind else "")
    )
    blind = [(one, called) for one, names in containers_without_environment(gang).items() for called in names]
    bodies = [gang.templates[one].containers for one, _ in blind]
    may_be_helper = any(len(body) > 1 and not any(map(asks_for_device, body)) for body in bodies)
    is_only, is_single = len(gang.templates) == 1, len(blind) == 1
    listed = ", ".join(called if is_only else f"{called} of {one}" for one, called in blind)
    yield Finding(
        name="environment-not-read",
        severity=Severity.RISKS,
        what=f"{f'container {listed} does' if is_single else f'containers {listed} do'} not read the "
        f"ConfigMap {('' if gang.ref.name else '<name>')}{name}" + (unless if unknown else ""),
        where=case.at(
            ", ".join(
                f"{case.spec.template_field(one)}.spec.containers[{called}].envFrom" for one, called in blind
            )
        ),
        means=f"{'this container does' if is_single else 'these containers do'} not learn from which "
        "checkpoint to resume, and Rekindle can give it no variables for a known issue; nobody can "
        f"add an envFrom to a {gang.ref.kind} after its creation"
        + ("; a container that does not train needs no envFrom" if may_be_helper else ""),
        fix=("" if gang.ref.name else "metadata.name: NAME instead of generateName, then ")
        + f"{enabling(case)} | kubectl create -f -",
    )


def optional(case: Case) -> Iterator[Finding]:
    """Reports containers that require the ConfigMap, which does not exist before the first recovery. If a pod
    of the job runs, somebody has created the ConfigMap."""
    if case.pods:
        return
    others = environments_of_other_kinds(case.gang.ref)
    for template, body in case.gang.templates.items():
        is_only = len(case.gang.templates) == 1
        pods = "no pod of the job starts" if is_only else f"the pods of {template} do not start"
        for container in body.containers:
            called = container.get("name", "")
            field = f"{case.spec.template_field(template)}.spec.containers[{called}].envFrom"
            for name in requires_environment(container, case.gang.ref, others):
                right = environment_name(case.gang) if name in others else name
                yield Finding(
                    name="environment-not-optional",
                    severity=Severity.FAILS,
                    what=f"container {called} requires the ConfigMap {name}, which "
                    + (
                        f"Rekindle never creates for this job: the ConfigMap of this {case.gang.ref.kind} is "
                        f"{right}"
                        if name in others
                        else "does not exist before the first recovery of the job"
                    ),
                    where=case.at(field, f"configMapRef: {{name: {name}}}"),
                    means=f"{pods} (CreateContainerConfigError)",
                    fix=f"write `envFrom: [{{configMapRef: {{name: {right}, optional: true}}}}]`, as "
                    f"`{enabling(case)}` does",
                )


def enabling(case: Case) -> str:
    """Returns the command that prints the manifest with everything that its jobs need."""
    named = "-" if case.file == STANDARD_INPUT else case.file or "job.yaml"
    return f"rekindle enable -f {shlex.quote(named)}"


def _pods_consent(case: Case) -> bool:
    """Whether the policy sees consent for all pods: the pod template's own label or annotation decides,
    otherwise the namespace's."""
    for _, template in case.templates:
        told = msgspec.structs.replace(
            case.gang, labels=template.metadata.labels, annotations=template.metadata.annotations
        )
        if opt_in(told, case.namespace) is not OptIn.ENABLED:
            return False
    return True


def own_variables(case: Case) -> Iterator[Finding]:
    """Reports variables of Rekindle that a template sets itself: the template's value takes precedence over
    envFrom."""
    for field, template in case.templates:
        for container in template.spec.containers:
            for variable in container.env:
                if variable.name.startswith(_OURS):
                    resumes = variable.name in _RESUME
                    place = f"{field}.spec.containers[{container.name}].env[{variable.name}]"
                    yield Finding(
                        name="own-variable",
                        severity=Severity.FAILS if resumes else Severity.RISKS,
                        what=f"container {container.name} sets {variable.name} itself",
                        where=case.at(place, variable.value),
                        means="the template's variable takes precedence over the variable of Rekindle"
                        + (f", so {_resuming(variable)}" if resumes else ""),
                        fix=f"remove {variable.name} from env; put a default into the program",
                    )


def _resuming(variable: Variable) -> str:
    if variable.value and variable.name == "REKINDLE_RESUME_STEP":
        return "each restart counts its steps from the same number"
    if variable.value:
        return "each restart begins from the same checkpoint"
    return "the ranks do not see the checkpoint that Rekindle chooses"
