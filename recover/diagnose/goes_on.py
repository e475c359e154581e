"""A fault that goes on is one finding as long as its agent sees no pause: when was it shown last? Pure.

A release, a closed Incident and the beginning of a mode answer what was shown before them. A repetition after
that is news, though it only adds to a count and a time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from detectors.contract import Finding

__all__ = ["SETTLED", "as_of", "is_shown_after", "shown_at"]

SETTLED = timedelta(seconds=60)
"""Consequences of one fault come within this time and move its last time, too; a longer pause than this, and
it is another finding (`repeat_s` of the agents). So what is told later than this was shown anew."""


def shown_at(finding: Finding) -> datetime:
    """A time at which it was certainly shown, as late as can be told."""
    return max(finding.first_seen, finding.last_seen - SETTLED)


def is_shown_after(finding: Finding, end: datetime, now: datetime) -> bool:
    """A clock that runs ahead must not make a finding look newer than the `end` that answered it."""
    return end < finding.first_seen <= now or (end < shown_at(finding) and finding.last_seen <= now)


def as_of(finding: Finding, end: datetime | None) -> Finding:
    """As if it had begun when it was shown anew. Without a pause in it that was not later than this."""
    if end is None or finding.first_seen > end:
        return finding
    return msgspec.structs.replace(finding, first_seen=end + SETTLED)
