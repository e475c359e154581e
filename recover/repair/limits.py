"""How much may be under repair at a time: caps, counted from the Incidents at each look. Pure.

Where an absolute and a percentage stand, the smaller counts, at least 1. What one look takes counts at once
for the rest of it. Validation and return are never held up: they end a disruption.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from recover.api.reasons import Reason
from recover.api.repair_state import WORKING, StepKind, StepOutcome
from recover.model import World
from recover.policy.settings import Repairs
from recover.triage.guard import Allowed, Denied, Verdict

__all__ = ["Limits"]

_HOUR = timedelta(hours=1)


class Limits:
    """Built for one look; `take` keeps what it has used up so far."""

    def __init__(self, world: World, limits: Repairs, now: datetime) -> None:
        self._limits = limits
        accelerated = sum(1 for node in world.nodes.values() if node.is_accelerated)
        share = max(1, int(accelerated * limits.percent_at_once_max / 100))
        self._at_once = min(limits.nodes_at_once_max, share)
        repairs = [i.status.repair for i in world.incidents.values() if i.status.repair is not None]
        self._working = sum(1 for repair in repairs if repair.phase in WORKING)
        self._recent = Counter(
            step.kind
            for repair in repairs
            for step in repair.steps
            if step.at > now - _HOUR and step.outcome is not StepOutcome.WITHDRAWN
        )

    def take(self, kind: StepKind) -> Verdict:
        """Asks for a reset or a reboot of one more node, and on Allowed takes it."""
        if self._working + 1 > self._at_once:
            return Denied(
                Reason.BUDGET_EXHAUSTED,
                f"{self._working} node(s) are under repair, the limit is {self._at_once}",
            )
        limit = (
            self._limits.resets_per_hour_max if kind is StepKind.RESET else self._limits.reboots_per_hour_max
        )
        if self._recent[kind] + 1 > limit:
            return Denied(
                Reason.BUDGET_EXHAUSTED,
                f"{self._recent[kind]} {kind}s in the last hour, the limit is {limit}",
            )
        self._working += 1
        self._recent[kind] += 1
        return Allowed()
