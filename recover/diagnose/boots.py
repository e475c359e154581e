"""Finds why a node has booted, from its agent's report after the boot. Pure; for gang_faults.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.rules.host_state_rows import BOOTS
from detectors.wire.contract import Finding
from recover.model import World

__all__ = ["boots_after"]

_BOOTING = timedelta(hours=1)
"""Time that a server may take from its crash to its next boot."""
_CLOCKS = timedelta(minutes=2)
"""Time by which the agent's report of the boot may seem older than the loss, because clocks differ."""


def boots_after(world: World, node: str, lost_at: datetime) -> list[Finding]:
    """Returns the findings about the boot that followed the loss, or that ended the rank, if the agent
    reports them."""
    health = world.health.get(node)
    if health is None:
        return []
    return [
        finding
        for finding in health.status.findings
        if finding.code in BOOTS and -_CLOCKS <= finding.first_seen - lost_at <= _BOOTING
    ]
