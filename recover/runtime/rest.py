"""How long a loop rests after a look. Pure."""

from __future__ import annotations

__all__ = ["REST_S_MAX", "rest_after"]

SHORT_S = 0.005
SHARE = 3.0
SHARE_UNHURRIED = 12.0
"""Of a loop that no fault and no gang waits for: it takes a thirteenth of a core at most, however much
changes."""
REST_S_MAX = 2.0
"""A machine that stood still makes a look seem long."""


def rest_after(took_s: float, *, is_unhurried: bool = False) -> float:
    """In seconds, after a look that took that long. A short look needs no rest. A long one, as at a gang of
    thousands whose ranks all fail at once, would otherwise follow on the last change of each rank, and leave
    the event loop to nobody else."""
    share = SHARE_UNHURRIED if is_unhurried else SHARE
    return min(share * took_s, REST_S_MAX) if took_s > SHORT_S else 0.0
