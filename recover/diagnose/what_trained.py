"""Training that goes on after a suspicion outlives it. Pure; part of what_counts.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Finding, NodeHealth

__all__ = ["trained_after", "trained_over"]

_TRAINED_S = 60.0
"""Training that goes on for so long after a finding was shown last has outlived it: a fault shows its effect
on a rank within this time."""


def trained_over(finding: Finding, health: NodeHealth) -> bool:
    """Training on its node has made steps well after the finding was shown last."""
    return trained_after(health, finding.last_seen)


def trained_after(health: NodeHealth | None, at: datetime) -> bool:
    """Training on that node has made steps well after this."""
    after = at + timedelta(seconds=_TRAINED_S)
    return health is not None and any(
        pod.first_step is not None and pod.last_step_at is not None and pod.last_step_at > after
        for pod in health.status.pods
    )
