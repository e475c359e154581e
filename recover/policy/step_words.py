"""Names the annotations about a job's steps: the template of the lines in the log, and the time after which
silence is a hang. Pure.
"""

from __future__ import annotations

from detectors.wire.contract import key

__all__ = ["HANG_TIMEOUT", "STEP_TEMPLATE", "usable_template"]

STEP_TEMPLATE = key("step-template")

HANG_TIMEOUT = key("hang-timeout")


def usable_template(text: str) -> bool:
    return text.count("{step}") == 1 and len(text) <= 128
