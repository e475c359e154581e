"""One container whose log is read, for the tests of what is concluded from its lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detectors.catalog.log_errors import packaged_log_errors
from detectors.facts import PodRef
from detectors.pods import PodFold
from detectors.settings import Logs

__all__ = ["ERRORS", "REF", "START", "at", "pod"]

START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
REF = PodRef("train", "llm-0", "uid-0", "main", 0)
ERRORS = packaged_log_errors()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def pod() -> PodFold:
    return PodFold(REF, Logs(), ERRORS)
