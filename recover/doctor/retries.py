"""Whether the framework lets the job live until it is stopped and started again. Pure.

The facts were measured; recover/workloads tells them of each kind. A job that may be made anew
(on-terminal: recreate) survives what would fail it for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from recover.doctor.case import Case, Finding, Severity
from recover.doctor.job_spec import FailureRule, JobSetSpec, JobSpec, KubeflowSpec
from recover.policy.consent import ON_TERMINAL, may_recreate

__all__ = ["deadline", "headroom", "removal"]

_CRASHES = (1, 134, 137, 139)
"""How a training ends whose GPU, memory or program has failed: by an exception, SIGABRT, SIGKILL, SIGSEGV."""
_MADE_ANEW = "a Job that has failed for good cannot be started again"
_FAILS_FOR_GOOD = {"Never": "any rank that fails", "ExitCode": "a rank that exits with 1 to 127"}
"""Restart policies of Kubeflow's replicas."""


def headroom(case: Case) -> Iterator[Finding]:
    """What fails the job for good at a rank's end."""
    if may_recreate(case.gang.annotations):
        return
    match case.spec:
        case JobSpec():
            yield from _of_job(case, case.spec)
        case JobSetSpec():
            yield from _of_jobset(case, case.spec)
        case KubeflowSpec():
            yield from _of_kubeflow(case, case.spec)
        case _:
            assert_never(case.spec)


def _of_job(case: Case, job: JobSpec) -> Iterator[Finding]:
    recreate = case.set_annotation(ON_TERMINAL, "recreate")
    per_index = job.backoff_limit_per_index
    if per_index is not None:
        if per_index == 0:
            yield Finding(
                name="no-retry",
                severity=Severity.FAILS,
                what="the first failed pod of an index ends that index for good",
                where=case.at("spec.backoffLimitPerIndex", "0"),
                means="a rank that has ended is never made again, so the gang stays stopped",
                fix=recreate,
            )
    elif case.gang.failures >= job.backoff_limit:
        counted = f" ({case.gang.failures} failed pods are counted)" if case.gang.failures else ""
        yield Finding(
            name="no-retry",
            severity=Severity.FAILS,
            what=f"the next failed pod ends the Job for good{counted}",
            where=case.at("spec.backoffLimit", str(job.backoff_limit)),
            means=_MADE_ANEW,
            fix=f"{recreate}; or spec.backoffLimit: {job.backoff_limit + 6}",
        )
    else:
        yield Finding(
            name="retries-counted",
            severity=Severity.ADVICE,
            what=f"each failed pod counts against backoffLimit {job.backoff_limit} for ever",
            where=case.at("spec.backoffLimit", str(job.backoff_limit)),
            means="after each the Job waits longer before it makes new pods (10 s, 20 s, ... 10 min), and "
            "after the last it has failed for good",
            fix=recreate,
        )
    for number, rule in enumerate(job.pod_failure_policy.rules):
        if rule.action in ("FailJob", "FailIndex"):
            yield _rule(case, number, rule, recreate)


def _rule(case: Case, number: int, rule: FailureRule, recreate: str) -> Finding:
    codes = rule.on_exit_codes
    said, crash = "on a condition of the pod", True
    if codes is not None:
        listed = ", ".join(map(str, codes.values))
        said = f"on exit codes {listed}" if codes.operator == "In" else f"on exit codes other than {listed}"
        crash = any((code in codes.values) == (codes.operator == "In") for code in _CRASHES)
    return Finding(
        name="pod-failure-policy",
        severity=Severity.FAILS if crash else Severity.ADVICE,
        what=f"{rule.action} {said}",
        where=case.at(f"spec.podFailurePolicy.rules[{number}].action", rule.action),
        means="such an end is final at once, whatever its cause; " + _MADE_ANEW,
        fix=f"{recreate}; or without that rule",
    )


def _of_jobset(case: Case, jobset: JobSetSpec) -> Iterator[Finding]:
    """Its restarts are set off by us and counted nowhere, if the stop comes before JobSet acts."""
    policy = jobset.failure_policy
    final = policy is None or policy.max_restarts == 0 or any(r.action == "FailJobSet" for r in policy.rules)
    brittle = [
        one.name
        for one in jobset.replicated_jobs
        if one.template.spec.backoff_limit == 0
        or any(rule.action == "FailJob" for rule in one.template.spec.pod_failure_policy.rules)
    ]
    if final and brittle:
        yield Finding(
            name="no-retry",
            severity=Severity.RISKS,
            what=f"the first failed pod of {', '.join(brittle)} fails its Job, and that the JobSet for good",
            where=case.at("spec.failurePolicy.maxRestarts", str(policy.max_restarts) if policy else ""),
            means="only a stop within 1.2 s saves it, and there is none while the controller starts",
            fix="spec.failurePolicy: {maxRestarts: 10} (a new JobSet: the field cannot be changed); or "
            + case.set_annotation(ON_TERMINAL, "recreate"),
        )


def _of_kubeflow(case: Case, job: KubeflowSpec) -> Iterator[Finding]:
    recreate = case.set_annotation(ON_TERMINAL, "recreate")
    for role, replica in job.replicas.items():
        what = _FAILS_FOR_GOOD.get(replica.restart_policy)
        if what is not None:
            field = f"spec.{job.field}.{role}.restartPolicy"
            yield Finding(
                name="no-retry",
                severity=Severity.FAILS,
                what=f"{what} ends the job for good",
                where=case.at(field, replica.restart_policy),
                means="it is saved only by a stop in the same moment: 0.3 s later it was too late each time",
                fix=f"{field}: OnFailure; or {recreate}",
            )
    if job.run_policy.backoff_limit == 0:
        yield Finding(
            name="no-retry",
            severity=Severity.RISKS,
            what="the operator counts a failed pod against backoffLimit 0",
            where=case.at("spec.runPolicy.backoffLimit", "0"),
            means="the first failed rank may end the job for good",
            fix=f"spec.runPolicy.backoffLimit: 100; or {recreate}",
        )


def deadline(case: Case) -> Iterator[Finding]:
    for field, seconds in _deadlines(case):
        if seconds is not None:
            yield Finding(
                name="active-deadline",
                severity=Severity.ADVICE,
                what=f"it is failed after {seconds} s",
                where=case.at(field, str(seconds)),
                means="the time starts again with each restart; when it is over, the job has failed for good",
                fix=f"remove {field}, if it is not meant so",
            )


def _deadlines(case: Case) -> list[tuple[str, int | None]]:
    match case.spec:
        case JobSpec():
            return [("spec.activeDeadlineSeconds", case.spec.active_deadline_seconds)]
        case JobSetSpec():
            return [
                (
                    f"spec.replicatedJobs[{one.name}].template.spec.activeDeadlineSeconds",
                    one.template.spec.active_deadline_seconds,
                )
                for one in case.spec.replicated_jobs
            ]
        case KubeflowSpec():
            return [("spec.runPolicy.activeDeadlineSeconds", case.spec.run_policy.active_deadline_seconds)]
        case _:
            assert_never(case.spec)


def removal(case: Case) -> Iterator[Finding]:
    """A failed job is made anew from its object, when the scan has chosen a checkpoint."""
    if isinstance(case.spec, KubeflowSpec):
        field, seconds = (
            "spec.runPolicy.ttlSecondsAfterFinished",
            case.spec.run_policy.ttl_seconds_after_finished,
        )
    else:
        field, seconds = "spec.ttlSecondsAfterFinished", case.spec.ttl_seconds_after_finished
    needed_s = case.timing.stop_deadline_s + case.timing.scan_deadline_s
    if seconds is None or seconds >= needed_s or not may_recreate(case.gang.annotations):
        return
    at_once = seconds < case.timing.scan_deadline_s
    yield Finding(
        name="removed-too-soon",
        severity=Severity.FAILS if at_once else Severity.RISKS,
        what=f"a failed job is removed after {seconds} s",
        where=case.at(field, str(seconds)),
        means=f"it may be gone before it can be made again, which takes up to {needed_s:g} s",
        fix=f"{field}: 3600",
    )
