"""Defaults and immutability of the built-in kinds, as far as they concern gang recovery. Called by the table
in kinds.py; pure functions over plain objects.

Source of the rules: Kubernetes 1.36 API validation, read and run against a real API server.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

__all__ = [
    "accept",
    "fill_in_job",
    "fill_in_namespace",
    "fill_in_node",
    "fill_in_pod",
    "nothing",
    "refuse_job",
    "refuse_jobset",
    "refuse_kubeflow",
    "refuse_lease",
    "refuse_pod",
]

EVICTION_AFTER_S = 300
"""Seconds of toleration that the DefaultTolerationSeconds admission gives a pod that sets no value itself."""
GRACE_S = 30
BACKOFF_LIMIT = 6
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_GATED_FIELDS = ("nodeSelector", "affinity")
_SUSPENDED_POD_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")


def nothing(_: dict[str, Any]) -> None:
    """Changes nothing, for kinds without defaults."""


def accept(_: dict[str, Any] | None, __: dict[str, Any]) -> str | None:
    return None


def fill_in_namespace(namespace: dict[str, Any]) -> None:
    labels = namespace["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/metadata.name", namespace["metadata"]["name"])
    namespace["status"] = {"phase": "Active"}


def fill_in_node(node: dict[str, Any]) -> None:
    labels = node["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/hostname", node["metadata"]["name"])
    node.setdefault("spec", {})


def fill_in_pod(pod: dict[str, Any]) -> None:
    pod["status"] = {"phase": "Pending"}
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S)
    for container in spec.get("containers", []):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(t, key) for t in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": EVICTION_AFTER_S,
                }
            )


def _covers(toleration: dict[str, Any], key: str) -> bool:
    return bool(toleration.get("key", key) == key and toleration.get("effect", "NoExecute") == "NoExecute")


def refuse_pod(old: dict[str, Any] | None, new: dict[str, Any]) -> str | None:
    """Refuses most changes of a pod's spec after its creation. Allowed are the first binding, fewer gates,
    other images, added tolerations, the deadline and the grace; before the last gate is gone also another
    node selector and affinity."""
    containers = new["spec"].get("containers")
    if not isinstance(containers, list) or not containers:
        return "spec.containers: Required value"
    if old is None:
        return None
    before, after = copy.deepcopy(old["spec"]), copy.deepcopy(new["spec"])
    if not before.get("nodeName"):
        before.pop("nodeName", None)
        after.pop("nodeName", None)
    gates_before, gates_after = before.pop("schedulingGates", []), after.pop("schedulingGates", [])
    if any(gate not in gates_before for gate in gates_after):
        return "spec.schedulingGates: Forbidden: only deletion is allowed"
    tolerations_before, tolerations_after = before.pop("tolerations", []), after.pop("tolerations", [])
    if any(toleration not in tolerations_after for toleration in tolerations_before):
        return "spec.tolerations: Forbidden: existing tolerations may not be changed"
    for spec in (before, after):
        for field in ("activeDeadlineSeconds", "terminationGracePeriodSeconds"):
            spec.pop(field, None)
        for field in _GATED_FIELDS if gates_before else ():
            spec.pop(field, None)
        for container in spec["containers"]:
            container.pop("image", None)
    return None if before == after else "spec: Forbidden: pod updates may not change these fields"


def fill_in_job(job: dict[str, Any]) -> None:
    spec = job.setdefault("spec", {})
    if "parallelism" not in spec:
        spec["parallelism"] = 1
        spec.setdefault("completions", 1)  # without completions, a Job with a parallelism is a work queue
    spec.setdefault("backoffLimit", BACKOFF_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")


def refuse_job(old: dict[str, Any] | None, new: dict[str, Any]) -> str | None:
    """Refuses a change of the template, unless the job is suspended and the change concerns only the labels,
    annotations, placement and resources of its pods. Some other fields of the spec never change."""
    template = new["spec"].get("template")
    if not isinstance(template, dict):
        return "spec.template: Required value"
    if template.get("spec", {}).get("restartPolicy") not in ("Never", "OnFailure"):
        return 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    if new["spec"].get("completionMode") == "Indexed" and "completions" not in new["spec"]:
        return "spec.completions: Required value: when completion mode is Indexed"
    if old is None:
        return None
    for field in ("completions", "completionMode", "selector"):
        if old["spec"].get(field) != new["spec"].get(field):
            return f"spec.{field}: Invalid value: field is immutable"
    before, after = copy.deepcopy(old["spec"]["template"]), copy.deepcopy(template)
    if old["spec"].get("suspend"):
        _drop_placement(before)
        _drop_placement(after)
    return None if before == after else "spec.template: Invalid value: field is immutable"


def _drop_placement(template: dict[str, Any]) -> None:
    for field in ("labels", "annotations"):
        template.get("metadata", {}).pop(field, None)
    if template.get("metadata") == {}:
        del template["metadata"]
    spec = template["spec"]
    for field in _SUSPENDED_POD_FIELDS:
        spec.pop(field, None)
    spec.get("affinity", {}).pop("nodeAffinity", None)
    if spec.get("affinity") == {}:
        del spec["affinity"]
    for container in spec.get("containers", []):
        container.pop("resources", None)


def refuse_lease(_: dict[str, Any] | None, new: dict[str, Any]) -> str | None:
    spec = new.get("spec", {})
    for field in ("acquireTime", "renewTime"):
        if spec.get(field) is not None and not _MICRO_TIME.fullmatch(spec[field]):
            return f'spec.{field}: Invalid value: "{spec[field]}": must have six decimals of a second'
    if spec.get("leaseDurationSeconds", 1) <= 0:
        return "spec.leaseDurationSeconds: Invalid value: must be greater than 0"
    if spec.get("leaseTransitions", 0) < 0:
        return "spec.leaseTransitions: Invalid value: must be greater than or equal to 0"
    return None


def refuse_kubeflow(field: str, *roles: str) -> Callable[[dict[str, Any] | None, dict[str, Any]], str | None]:
    """Returns the check for a kind whose spec has the replicas of these roles in `field`."""

    def refuse(_: dict[str, Any] | None, new: dict[str, Any]) -> str | None:
        replicas = new.get("spec", {}).get(field)
        if not isinstance(replicas, dict) or not replicas:
            return f"spec.{field}: Required value"
        unknown = sorted(set(replicas) - set(roles))
        if unknown:
            return f'spec.{field}: Invalid value: "{unknown[0]}": expected {" or ".join(roles)}'
        return None

    return refuse


def refuse_jobset(old: dict[str, Any] | None, new: dict[str, Any]) -> str | None:
    """Refuses a change of the Jobs' templates, unless the JobSet is suspended before or after the write and
    the change concerns only the labels, annotations, placement and resources of its pods. Source: JobSet
    0.11's validating webhook."""
    jobs = new.get("spec", {}).get("replicatedJobs")
    if not isinstance(jobs, list) or not jobs:
        return "spec.replicatedJobs: Required value"
    if old is None:
        return None
    before, after = (copy.deepcopy(body["spec"]["replicatedJobs"]) for body in (old, new))
    if old["spec"].get("suspend") or new["spec"].get("suspend"):
        for job in (*before, *after):
            _drop_placement(job["template"]["spec"]["template"])
    return None if before == after else "spec.replicatedJobs: Invalid value: field is immutable"
