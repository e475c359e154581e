"""Remembers between two reconciles since when each Node's condition differs from what it should be. The loop
of triage/node_condition.py uses it. A controller that has just started waits once more for the time that a
change must last (`STEADY_S`), and loses nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from recover.model import World
from recover.model.actions import Plan
from recover.triage.node_condition import Wanted, told_nodes

__all__ = ["NodeConditions"]


class NodeConditions:
    """Decides as `told_nodes` does, once for each reconcile."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._wanted: Mapping[str, Wanted] = {}

    def decide(self, world: World, now: datetime) -> Plan:
        plan, self._wanted = told_nodes(world, self._wanted, now, is_on=self._is_on)
        return plan
