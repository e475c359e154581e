"""Why a node has booted, as its agent tells it after the boot. Pure; for gang_faults.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.rules.host_state_rows import BOOTS
from detectors.wire.contract import Finding
from recover.model import World

__all__ = ["boots_after"]

_BOOTING = timedelta(hours=1)
"""A server may take this long from its crash to its next boot."""
_CLOCKS = timedelta(minutes=2)


def boots_after(world: World, node: str, lost_at: datetime) -> list[Finding]:
    """The boot that followed, or that took the rank away, where its agent tells of it."""
    health = world.health.get(node)
    if health is None:
        return []
    return [
        finding
        for finding in health.status.findings
        if finding.code in BOOTS and -_CLOCKS <= finding.first_seen - lost_at <= _BOOTING
    ]
