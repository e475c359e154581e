"""Parses durations as people write them in annotations: `90s`, `10m`, `24h`, `1h30m`, `off`. Pure."""

from __future__ import annotations

import re

__all__ = ["parse_s"]

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT_CHARS_MAX = 64
_S_MAX = 1e9
"""Maximum duration: thirty years. The sum of a time and a longer duration may exceed the years that a time
can have."""
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)")


def parse_s(text: str) -> float | None:
    """Returns the duration in seconds; 0 for `off`; None for an empty text, for a text that is no duration,
    and for more than thirty years. Each reconcile of a job calls this, and people of any namespace write the
    text, so its length is limited."""
    if len(text) > _TEXT_CHARS_MAX:
        return None
    text = text.strip().lower()
    if text in ("off", "0"):
        return 0.0
    position, total = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        total += float(part[1]) * _UNITS_S[part[2]]
        position = part.end()
    return total if position and total <= _S_MAX else None
