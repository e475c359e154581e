"""Tells when a finding was last shown. A fault that continues is one finding as long as its agent sees no
pause. Pure.

The end of a quarantine, a closed Incident and the beginning of a mode answer the findings that were shown
before them. A repetition after the answer is new, although it only changes a count and a time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Finding

__all__ = ["CLOCKS_APART", "SETTLED", "is_shown_after", "shown_at"]

CLOCKS_APART = timedelta(minutes=1)
"""Difference of clocks that is allowed between two machines. Clocks that are kept in time differ by far
less."""
_LEAD = timedelta(seconds=5)
"""Largest lead of a clock that is kept in time. A clock that is ahead by more is not trusted."""
SETTLED = timedelta(seconds=60)
"""Time within which the consequences of one fault come, and also move its last time. After a longer pause the
agent always begins a new finding; for a fault for which a gang may be stopped, it does so after 2 to 10 s
already (detectors/folds/chain.py). So a finding was shown again if its last time is more than this time after
its first time."""


def shown_at(finding: Finding) -> datetime:
    """Returns the latest time at which the finding was certainly shown."""
    return max(finding.first_seen, finding.last_seen - SETTLED)


def is_shown_after(finding: Finding, end: datetime, now: datetime) -> bool:
    """Whether the finding was shown after `end`. A clock that runs ahead must not make a finding look newer
    than the `end` that answered it. A finding that is dated a moment ahead still counts as newer, unless
    `end` was a moment ago, too."""
    first, last = finding.first_seen, finding.last_seen
    if first > now:
        return first - now <= _LEAD < first - end
    return end < first or (end < shown_at(finding) and last <= now)
