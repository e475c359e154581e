"""Checks whether the framework keeps the job alive until the job is stopped and started again. Pure.

The facts were measured; each framework's file in recover/workloads has the facts of its kind. A job that
Rekindle may create again (on-terminal: recreate) survives an end that the framework marks as final.
"""

from __future__ import annotations

from collections.abc import Iterator

from recover.doctor.case import Case, Finding, Severity
from recover.policy.consent import ON_TERMINAL, may_recreate

__all__ = ["deadline", "headroom", "removal"]

_KEPT_S = 3600


def headroom(case: Case) -> Iterator[Finding]:
    """Reports settings by which the framework marks the job as failed permanently when a rank ends."""
    if may_recreate(case.gang.annotations):
        return
    recreate = case.set_annotation(ON_TERMINAL, "recreate")
    if _is_removed_too_soon(case):
        recreate += f" and {case.spec.removal().field}: {_KEPT_S}"
    for hazard in case.spec.ends_for_good(case.gang, recreate):
        yield case.found(hazard)


def deadline(case: Case) -> Iterator[Finding]:
    for limit in case.spec.deadlines():
        field, seconds = limit.field, limit.seconds
        if seconds is not None:
            yield Finding(
                name="active-deadline",
                severity=Severity.ADVICE,
                what=f"the framework marks the job as failed after {seconds} s",
                where=case.at(field, str(seconds)),
                means="the time starts again with each restart; when the time is over, the job has "
                "failed permanently",
                fix=f"remove {field}, unless you want this deadline",
            )


def removal(case: Case) -> Iterator[Finding]:
    """Reports a job that Kubernetes removes too soon after its failure. Rekindle creates a failed job again
    from its object, after the scan has chosen a checkpoint."""
    limit = case.spec.removal()
    field, seconds = limit.field, limit.seconds
    if seconds is None or not _is_removed_too_soon(case) or not may_recreate(case.gang.annotations):
        return
    needed_s = _needed_s(case)
    at_once = seconds < case.timing.scan_deadline_s
    yield Finding(
        name="removed-too-soon",
        severity=Severity.FAILS if at_once else Severity.RISKS,
        what=f"Kubernetes removes the job {seconds} s after its failure",
        where=case.at(field, str(seconds)),
        means=f"the job may be gone before Rekindle can create it again, which takes up to {needed_s:g} s",
        fix=f"{field}: {_KEPT_S}",
    )


def _needed_s(case: Case) -> float:
    """Returns the seconds for which a failed job must stay, because Rekindle makes the next one from it."""
    return case.timing.stop_deadline_s + case.timing.scan_deadline_s


def _is_removed_too_soon(case: Case) -> bool:
    seconds = case.spec.removal().seconds
    return seconds is not None and seconds < _needed_s(case)
