"""Builds the Job of a step, pinned to the node, and reads the Job's result. Pure.

The pod template is the operator's or ours. This module overrides in the template what makes it a step of this
repair: the node, no second try, a time limit, and the variables that say what to do. Names are deterministic,
so that a step that was begun is never begun again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from detectors.wire.fitting import fitted
from detectors.wire.step_report import Check, Outcome, ReportError, ValidationReport, decode
from recover.api import Incident
from recover.api.marks import REPAIR_OF
from recover.api.repair_state import CheckRecord, Repair, RepairStep, StepKind
from recover.diagnose.diagnosis import fingerprint
from recover.k8s.bodies import shortened
from recover.k8s.kinds import JOBS
from recover.k8s.limits import LABEL_VALUE_CHARS_MAX
from recover.model import Gang, Pod, World
from recover.model.actions import Create, Delete
from recover.policy.settings import Settings

__all__ = [
    "create",
    "ended_badly",
    "has_told",
    "label_of",
    "name_of",
    "not_ended",
    "pod_ended_at",
    "remove",
    "report_of",
    "variables",
    "verdict",
]

_TOLERATE_ALL = [{"operator": "Exists"}]
_KEPT_S_MIN = 600
"""Shortest time for which an ended Job is kept, long enough for a controller that follows one that died: a
deleted Job can report nothing."""


def label_of(incident: str) -> str:
    """Returns the value of the label that names the Incident of a Job and its pod. `incident` is the
    Incident's name."""
    return shortened(incident, LABEL_VALUE_CHARS_MAX)


def name_of(incident: Incident, kind: StepKind, number: int) -> str:
    return f"repair-{fingerprint(incident.metadata.name, incident.metadata.uid)}-{kind}-{number}"


def variables(incident: Incident, repair: Repair) -> dict[str, str]:
    """Returns the variables that every container of a step gets."""
    return {
        "REKINDLE_NODE": incident.spec.node,
        "REKINDLE_INCIDENT": incident.metadata.name,
        "REKINDLE_FAULT": str(incident.fault),
        "REKINDLE_DEVICES": ",".join(repair.devices),
        "REKINDLE_EXPECTED_DEVICES": str(repair.devices_expected),
    }


def create(
    incident: Incident,
    repair: Repair,
    step: RepairStep,
    template: Mapping[str, Any],
    settings: Settings,
    ends_s: float,
) -> Create:
    """Returns the Job of a step. `template` is a pod template: metadata and spec, as a Job has them. The Job
    ends by itself when the step's time is over: a pod that starts later would act on a node on which nobody
    expects it."""
    labels = {REPAIR_OF: label_of(incident.metadata.name)}
    meta = template.get("metadata") or {}
    return Create(
        what=f"{step.kind}-node",
        resource=JOBS,
        name=step.job,
        namespace=settings.namespace,
        strict=True,
        body={
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {"name": step.job, "namespace": settings.namespace, "labels": labels},
            "spec": {
                "backoffLimit": 0,
                "completions": 1,
                "parallelism": 1,
                "activeDeadlineSeconds": max(1, int(ends_s)),
                "ttlSecondsAfterFinished": max(_KEPT_S_MIN, int(settings.repair.job_keep_s)),
                "template": {
                    "metadata": {
                        "labels": {**(meta.get("labels") or {}), **labels},
                        "annotations": meta.get("annotations") or {},
                    },
                    "spec": _pod(template["spec"], incident, repair, step, settings),
                },
            },
        },
    )


def _pod(
    spec: Mapping[str, Any], incident: Incident, repair: Repair, step: RepairStep, settings: Settings
) -> dict[str, Any]:
    told = {**variables(incident, repair), "REKINDLE_BOOT_ID": step.boot_id}
    given = [{"name": name, "value": value} for name, value in told.items()]
    node = {"key": "metadata.name", "operator": "In", "values": [incident.spec.node]}
    pinned = {"nodeSelectorTerms": [{"matchFields": [node]}]}
    return {
        **spec,
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pinned}},
        "tolerations": _TOLERATE_ALL,
        **{
            part: [_container(one, given, settings) for one in spec[part]]
            for part in ("initContainers", "containers")
            if spec.get(part)
        },
    }


def _container(
    container: Mapping[str, Any], given: list[dict[str, str]], settings: Settings
) -> dict[str, Any]:
    names = {variable["name"] for variable in given}
    own = [v for v in container.get("env") or [] if v.get("name") not in names]
    image = container.get("image") or settings.images.repair or settings.images.scan
    return {**container, "image": image, "env": [*given, *own]}


def remove(job: Gang) -> Delete:
    """Returns the deletion of the Job together with its pod, which another kind of deletion would leave
    behind."""
    ref = job.ref
    return Delete(
        what="remove-repair-job",
        resource=JOBS,
        name=ref.name,
        namespace=ref.namespace,
        uid=ref.uid,
        foreground=True,
    )


# --- what it says -----------------------------------------------------------------------------------------


def ended_badly(world: World, job: Gang) -> str:
    """Returns why the Job failed, in words; empty if it succeeded or still runs."""
    if job.terminal is None or job.terminal.succeeded:
        return ""
    pod = _pod_of(world, job)
    why = f"{job.terminal.reason}: {job.terminal.message}".strip(": ")
    if pod is None:  # Kubernetes deletes the pods of a Job whose time is over
        return f"Job {job.ref.name} failed, and its pod no longer exists, so the cause is unknown ({why})"
    said = next((c for c in pod.containers if c.exit_code), None)
    if said is None:
        return f"Job {job.ref.name} failed ({pod.failure or why})"
    words = _words(said.message)
    return f"Job {job.ref.name} failed: container {said.name} ended with {said.exit_code}{words}"


def _words(message: str) -> str:
    """Returns the message of a container as the end of a sentence: a report's failed checks, or the text."""
    try:
        said = "; ".join(_told(_record(check)) for check in decode(message, where="").failed)
    except ReportError:
        said = message.strip()
    return f": {said}" if said else ""


def not_ended(world: World, job: Gang) -> str:
    """Returns what is known, at its deadline, about a Job that has not ended. The Job is then deleted with
    its pod."""
    pod, name, namespace = _pod_of(world, job), job.ref.name, job.ref.namespace
    if pod is None:
        return f"Job {name} had no pod; to see why: kubectl events -n {namespace} --for job/{name}"
    said = f"the pod of Job {name}"
    if not pod.node:
        return f"{said} found no place: {pod.unschedulable or 'no scheduler has processed the pod'}"
    waiting = next((c.waiting for c in pod.containers if c.waiting is not None and c.waiting.message), None)
    if waiting is not None:
        return f"{said} waits: {waiting.reason}: {waiting.message}"
    if any(container.running for container in pod.containers):
        return f"{said} still ran"
    return f"{said} has not started; to see why: kubectl events -n {namespace} --for pod/{pod.name}"


def has_told(world: World, job: Gang) -> bool:
    """Whether the result of an ended Job is fully known: the Job's pod comes by another watch, perhaps
    later."""
    pod = _pod_of(world, job)
    if pod is None:
        return job.terminal is not None and not job.terminal.succeeded
    return pod.ended


def pod_ended_at(world: World, job: Gang) -> datetime | None:
    """Returns when the last container of the Job's pod ended, by the node's clock, or None if that is not
    known."""
    pod = _pod_of(world, job)
    ends = [c.finished_at for c in pod.containers if c.finished_at is not None] if pod is not None else []
    return max(ends, default=None)


def report_of(world: World, job: Gang) -> ValidationReport | str:
    """Returns the report of the pod of an ended Job, or why the report is unknown."""
    pod = _pod_of(world, job)
    message = next((c.message for c in pod.containers if c.message), "") if pod is not None else ""
    if not message:
        return ended_badly(world, job) or f"Job {job.ref.name} ended without a report"
    try:
        return decode(message, where=f"pod {pod.name}" if pod else job.ref.name)
    except ReportError as error:
        return str(error)


def _pod_of(world: World, job: Gang) -> Pod | None:
    """Returns the pod of the Job in our namespace. Anybody may name the Job as the owner of a pod, but nobody
    else may write into our namespace."""
    pods = world.pods_of.get(job.ref.uid, {}).values()
    ours = [pod for pod in pods if pod.namespace == job.ref.namespace]
    return max(ours, key=lambda pod: (pod.ended, pod.name), default=None)


def verdict(report: ValidationReport, required: tuple[str, ...]) -> tuple[list[CheckRecord], list[str]]:
    """Returns the checks as the Incident keeps them, and, in words, those that forbid the node's return to
    service. A check that could not run forbids the return only if it is required; so does a required check
    that was not made."""
    records = [_record(check) for check in report.checks]
    made = {check.name for check in report.checks}
    bad = [_told(c) for c in records if c.outcome is Outcome.FAILED]
    bad += [_told(c) for c in records if c.outcome is Outcome.NOT_RUN and c.name in required]
    bad += [f"the required check {name} was not made" for name in required if name not in made]
    return records, bad


def _record(check: Check) -> CheckRecord:
    return fitted(CheckRecord, name=check.name, outcome=check.outcome, message=check.message)


def _told(check: CheckRecord) -> str:
    how = "failed" if check.outcome is Outcome.FAILED else "is required and did not run"
    return f"{check.name} {how}" + (f": {check.message}" if check.message else "")
