"""Counts the log lines that recipes search for, and logs templates that cannot be used.

The module is between the core, which finds the lines, and the metrics.
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
    """Counts lines by recipe. Call `changed` after the node's spec was taken."""

    def __init__(self, core: AgentCore, metrics: Metrics) -> None:
        self._core = core
        self._series = metrics.log_signatures
        self._names: frozenset[str] = frozenset()
        self._told: tuple[str, ...] = ()
        self._counted: dict[PodRef, datetime] = {}
        self._began = datetime.now(UTC)

    def changed(self) -> None:
        """Updates the series. Each recipe gets its series at once: for a rate, a series that begins with the
        first line shows no rise."""
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
        """Counts a line for each of these recipes. A log is read again after a restart of the agent, and for
        a new step template; lines that the log contained before are not counted then."""
        if names and at > self._counted.get(pod, self._began):
            self._counted[pod] = at
            for name in names:
                self._series.labels(name).inc()

    def forget(self, pod: PodRef) -> None:
        self._counted.pop(pod, None)
