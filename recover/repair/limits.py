"""Counts the limits of repairs, from the Incidents at each reconcile: how much may be under repair at a time.
Pure.

If a limit has an absolute number and a percentage, the smaller counts, and is at least 1. Limits are a value:
the steps that a reconcile begins count in the Limits that `after` returns, and the rest of the reconcile uses
those Limits. Limits never delay validation and return to service, because they end a disruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from recover.api.reasons import Reason
from recover.api.repair_state import WORKING, StepKind, StepOutcome
from recover.model import World
from recover.policy.settings import Repairs
from recover.repair.occupants import named
from recover.triage.guard import Allowed, Denied, Verdict

__all__ = ["Limits"]

_HOUR = timedelta(hours=1)


class Limits(msgspec.Struct, frozen=True):
    """Numbers of nodes under repair and of steps that were begun within the hour, with their limits."""

    rules: Repairs
    at_once: int
    working: tuple[str, ...]
    """Names of the nodes under repair. A node that somebody holds in mid repair counts."""
    recent: Mapping[StepKind, int]

    @classmethod
    def of(cls, world: World, rules: Repairs, now: datetime) -> Limits:
        share = max(1, int(world.accelerated() * rules.percent_at_once_max / 100))
        repairs = [(i.spec.node, i.status.repair) for i in world.incidents.values() if i.status.repair]
        recent = Counter(
            step.kind
            for _, repair in repairs
            for step in repair.steps
            if step.at > now - _HOUR and step.outcome is not StepOutcome.WITHDRAWN
        )
        working = tuple(node for node, repair in repairs if repair.phase in WORKING)
        return cls(rules, min(rules.nodes_at_once_max, share), working, recent)

    def may_begin(self, kind: StepKind) -> Verdict:
        """Decides whether a reset or a reboot of one more node may begin."""
        if len(self.working) + 1 > self.at_once:
            return Denied(
                Reason.BUDGET_EXHAUSTED,
                f"{len(self.working)} of at most {self.at_once} nodes are under repair: "
                f"{named(sorted(self.working))}",
            )
        limit = self.rules.resets_per_hour_max if kind is StepKind.RESET else self.rules.reboots_per_hour_max
        recent = self.recent.get(kind, 0)
        if recent + 1 > limit:
            return Denied(Reason.BUDGET_EXHAUSTED, f"{recent} {kind}s in the last hour; the limit is {limit}")
        return Allowed()

    def after(self, kind: StepKind, node: str) -> Limits:
        """Returns the Limits that apply once this step has begun on one more node."""
        recent = {**self.recent, kind: self.recent.get(kind, 0) + 1}
        return msgspec.structs.replace(self, working=(*self.working, node), recent=recent)
