"""Decides which findings count as evidence of a fault that is open now. Pure; the agent's image and the
controller share it.

This is the only predicate. All code that needs to know whether a finding counts begins here: triage,
placement, spares and the repair ladder (mostly by way of recover/diagnose/what_counts.py), and the kernel-log
check of a repaired node.
"""

from __future__ import annotations

from detectors.wire.contract import Fault, Finding, Origin, Severity

__all__ = ["is_open"]

_OF_THE_JOB = (Fault.APPLICATION, Fault.RESOURCES)


def is_open(finding: Finding) -> bool:
    """Whether the finding shows a fault of its node that nothing has ended. Findings of severity info are
    only a record. A tenant can provoke evidence of origin tenant, and faults of class application, at will,
    so neither ever counts for the node. Resources that a job has used up do not count either."""
    return (
        finding.cleared_at is None
        and finding.severity is not Severity.INFO
        and finding.origin is not Origin.TENANT
        and finding.fault not in _OF_THE_JOB
    )
