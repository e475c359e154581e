"""Names the annotations about a job's steps: the template of the lines in the log, and the time after which
silence is a hang. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from detectors.wire.contract import key
from recover.k8s.durations import parse_s

__all__ = ["HANG_TIMEOUT", "STEP_TEMPLATE", "hang_timeout_s", "usable_template"]

STEP_TEMPLATE = key("step-template")

HANG_TIMEOUT = key("hang-timeout")


def hang_timeout_s(annotations: Mapping[str, str]) -> float | None:
    """Returns the job's own limit in seconds; 0 if the job wants none, and None if it says nothing. A value
    that cannot be read counts as 0: its writer most probably wanted a longer limit than the usual one, and a
    healthy job must not be stopped because of a spelling."""
    text = annotations.get(HANG_TIMEOUT, "")
    if not text.strip():
        return None
    seconds = parse_s(text)
    return 0.0 if seconds is None else seconds


def usable_template(text: str) -> bool:
    return text.count("{step}") == 1 and len(text) <= 128
