"""What was looked at: the coverage that must exist before an application may be blamed. Pure.

`recover.diagnose.gangs` asks here for each node where a rank was lost. A source that is blind, or that was
not read yet when the rank was lost, is no evidence that the node is healthy.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.contract import CoverageState, Fault
from recover.model import World
from recover.policy import policies

__all__ = ["not_covered"]


def not_covered(world: World, node: str, at: datetime) -> str:
    """Why an application must not be blamed for what happened at `at` on this node; empty where it may be."""
    health = world.health.get(node)
    if health is None:
        return f"no agent reports from {node or 'its node'}"
    for source in policies()[Fault.APPLICATION].required:
        row = next((c for c in health.status.coverage if c.source is source), None)
        if row is None:
            return f"{source} of {node} is not reported"
        if row.state is not CoverageState.COVERED:
            return f"{source} of {node} is blind ({row.why})"
        if row.since - at > timedelta(seconds=1):
            return f"{source} of {node} is covered only since {row.since:%H:%M:%S}"
    return ""
