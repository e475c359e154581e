"""Limits how often a message appears that each line of a source could cause. Pure; agent/wiring.py asks
before it warns.

Other programs write the source, and write without end if something is broken. An agent that warns for each
line fills the disk with its own log, and that log says no more than one line with the number of lines.
"""

from __future__ import annotations

__all__ = ["RateLimit"]

_EVERY_S = 60.0


class RateLimit:
    """Lets one message through in each interval, and counts the messages that it holds back."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._told_s: float | None = None
        self._held_back = 0

    def may_tell(self, now_s: float) -> bool:
        """Whether a message may be logged now. `now_s` is the time of a clock that is never set."""
        if self._told_s is not None and now_s - self._told_s < self._every_s:
            self._held_back += 1
            return False
        self._told_s = now_s
        return True

    def take_held_back(self) -> int:
        """Returns the number of messages held back since the last message, and begins to count from 0. The
        caller asks once for each message that it logs."""
        count, self._held_back = self._held_back, 0
        return count
