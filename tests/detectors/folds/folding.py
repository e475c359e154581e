"""One container whose log is read, for the tests of conclusions from its lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detectors.catalog.log_errors import packaged_log_errors
from detectors.folds.pods import PodFold
from detectors.rules.bars import pieces
from detectors.rules.facts import PodRef
from detectors.rules.step_lines import Candidate, read
from detectors.service.settings import Logs

__all__ = ["ERRORS", "REF", "START", "at", "pod", "step_in"]

START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
REF = PodRef("train", "llm-0", "uid-0", "main", 0)
ERRORS = packaged_log_errors()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def pod() -> PodFold:
    return PodFold(REF, Logs(), ERRORS)


def step_in(line: str, template: str = "") -> int | None:
    """Returns the step that one line alone shows, or None if only further lines could show that its number is
    a step."""
    told = [one for piece in pieces(line) for one in read(piece, template)]
    steps = [one.step for one in told if isinstance(one, Candidate) and one.strong]
    return steps[-1] if steps else None
