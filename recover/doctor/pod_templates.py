"""What in the pod templates makes a stop or a start slow, or places pods in spite of us. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from recover.doctor.case import Case, Finding, Severity
from recover.recovery.context import allowed_s

__all__ = ["gates", "grace", "tolerations"]


def tolerations(case: Case) -> Iterator[Finding]:
    """Kept off a bad node by affinity all the same, but where a framework makes pods after its start."""
    late = case.spec.placed_late
    for field, template in case.templates:
        if any(one.operator == "Exists" and not one.key for one in template.spec.tolerations):
            yield Finding(
                name="tolerates-everything",
                severity=Severity.RISKS if late else Severity.ADVICE,
                what="the pods tolerate every taint, the taint of a quarantined node included",
                where=case.at(f"{field}.spec.tolerations", "operator: Exists"),
                means=late
                or "at a restart, an affinity keeps the pods off the node that broke; nothing keeps "
                "them off other quarantined nodes",
                fix="tolerations: [{key: nvidia.com/gpu, operator: Exists}]: name each taint by its key",
            )


def grace(case: Case) -> Iterator[Finding]:
    within_s = allowed_s(case.gang, case.timing, case.timing.stop_deadline_s)
    for field, template in case.templates:
        seconds = template.spec.termination_grace_period_seconds
        if seconds >= within_s:
            yield Finding(
                name="grace-too-long",
                severity=Severity.RISKS,
                what=f"a pod may take {seconds} s to end",
                where=case.at(f"{field}.spec.terminationGracePeriodSeconds", str(seconds)),
                means=f"a rank that ignores SIGTERM does not end within {within_s:g} s "
                "(timing.stop_deadline_s): the recovery stops there and needs a person",
                fix=f"terminationGracePeriodSeconds: {int(within_s / 2)}",
            )


def gates(case: Case) -> Iterator[Finding]:
    for field, template in case.templates:
        if template.spec.scheduling_gates:
            names = ", ".join(gate.name for gate in template.spec.scheduling_gates)
            yield Finding(
                name="scheduling-gates",
                severity=Severity.RISKS,
                what="the pods have scheduling gates, and are not scheduled before a controller removes them",
                where=case.at(f"{field}.spec.schedulingGates", names),
                means=f"the same is true at a restart: after {case.timing.resume_deadline_s:g} s the "
                "recovery is blocked",
                fix="remove schedulingGates, or run a controller that removes the gates from every new pod",
            )
