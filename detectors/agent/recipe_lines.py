"""Counts the log lines that recipes look for, and tells of templates that cannot be used.

Between core, which finds them, and metrics.
"""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from detectors.folds.core import AgentCore
from detectors.rules.facts import PodRef
from detectors.service.metrics import Metrics

__all__ = ["RecipeLines"]

_log = structlog.get_logger("recipes")


class RecipeLines:
    """Ask `changed` after the node's spec was taken."""

    def __init__(self, core: AgentCore, metrics: Metrics) -> None:
        self._core = core
        self._series = metrics.log_signatures
        self._names: frozenset[str] = frozenset()
        self._told: tuple[str, ...] = ()
        self._counted: dict[PodRef, datetime] = {}
        self._began = datetime.now(UTC)

    def changed(self) -> None:
        """Each recipe has its series at once: to a rate, one that begins with the first line is no rise."""
        names = frozenset(self._core.sought.names)
        for name in names - self._names:
            self._series.labels(name)
        for name in self._names - names:
            self._series.remove(name)
        self._names = names
        for problem in self._core.sought.problems:
            if problem not in self._told:
                _log.error("log template skipped", problem=problem)
        self._told = self._core.sought.problems

    def count(self, pod: PodRef, names: frozenset[str], at: datetime) -> None:
        """A log is read again when the agent has restarted, and for a new step template. What it held before
        is not counted then."""
        if names and at > self._counted.get(pod, self._began):
            self._counted[pod] = at
            for name in names:
                self._series.labels(name).inc()

    def forget(self, pod: PodRef) -> None:
        self._counted.pop(pod, None)
