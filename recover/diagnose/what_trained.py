"""Tells whether training continued after a suspicion, and so has outlived it. Pure; for what_counts.py,
failing_starts.py and recovery/avoid.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Finding, NodeHealth

__all__ = ["trained_after", "trained_over"]

_TRAINED_S = 60.0
"""Time for which training must continue after a finding was last shown, so that the training has outlived the
finding. A fault shows its effect on a rank within this time."""


def trained_over(finding: Finding, health: NodeHealth) -> bool:
    """Whether training on the finding's node has made steps well after the finding was last shown."""
    return trained_after(health, finding.last_seen)


def trained_after(health: NodeHealth | None, at: datetime) -> bool:
    """Whether training on the node has made steps well after `at`."""
    after = at + timedelta(seconds=_TRAINED_S)
    return health is not None and any(
        pod.first_step is not None and pod.last_step_at is not None and pod.last_step_at > after
        for pod in health.status.pods
    )
