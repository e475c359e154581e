"""A fault that goes on is one finding as long as its agent sees no pause. When was it shown last? Pure.

A release, a closed Incident and the beginning of a mode answer the findings that were shown before them. A
repetition after that is news, although it only adds to a count and a time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Finding

__all__ = ["CLOCKS_APART", "SETTLED", "is_shown_after", "shown_at"]

CLOCKS_APART = timedelta(minutes=1)
"""Between two machines that are kept in time, by far the most."""
_LEAD = timedelta(seconds=5)
"""A clock that is kept in time is ahead by less. A clock that is ahead by more is not trusted."""
SETTLED = timedelta(seconds=60)
"""Consequences of one fault come within this time and also move its last time; after a longer pause it is
another finding (the agents' longest pause, detectors/folds/chain.py). So a finding whose last time is later
than this was shown again."""


def shown_at(finding: Finding) -> datetime:
    """The latest time at which the finding was certainly shown."""
    return max(finding.first_seen, finding.last_seen - SETTLED)


def is_shown_after(finding: Finding, end: datetime, now: datetime) -> bool:
    """Whether the finding was shown after `end`. A clock that runs ahead must not make a finding look newer
    than the `end` that answered it. A finding that is dated a moment ahead is newer all the same, unless
    `end` was a moment ago, too."""
    first, last = finding.first_seen, finding.last_seen
    if first > now:
        return first - now <= _LEAD < first - end
    return end < first or (end < shown_at(finding) and last <= now)
