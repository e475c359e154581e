"""Computes how long a loop rests after a reconcile. Pure."""

from __future__ import annotations

__all__ = ["REST_S_MAX", "rest_after"]

SHORT_S = 0.005
SHARE = 3.0
SHARE_UNHURRIED = 12.0
"""Rest, as a multiple of the duration of a reconcile, in a loop for which no fault and no gang waits: the
loop takes at most a thirteenth of a core, however much changes, as long as `REST_S_MAX` does not cut the
rest."""
REST_S_MAX = 2.0
"""Longest rest, in seconds. A machine that stood still makes a reconcile seem long."""


def rest_after(took_s: float, *, is_unhurried: bool = False) -> float:
    """Returns the rest in seconds after a reconcile that took `took_s`. A short reconcile needs no rest. A
    long one (a gang of thousands of ranks that all fail at once) would otherwise follow the last change of
    each rank, and leave no time of the event loop to other tasks."""
    share = SHARE_UNHURRIED if is_unhurried else SHARE
    return min(share * took_s, REST_S_MAX) if took_s > SHORT_S else 0.0
