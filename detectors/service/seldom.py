"""How often a message may come that each line of a source could cause. Pure; agent/wiring.py asks before it
warns.

The source is written by others, without end where something is broken. An agent that says so for each line
fills the disk with its own log, and tells no more than one that says how many there were.
"""

from __future__ import annotations

__all__ = ["Seldom"]

_EVERY_S = 60.0


class Seldom:
    """Lets one message through at a time, and counts those that it holds back."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._told_s: float | None = None
        self._held_back = 0

    def may_tell(self, now_s: float) -> bool:
        """By a clock that is never set."""
        if self._told_s is not None and now_s - self._told_s < self._every_s:
            self._held_back += 1
            return False
        self._told_s = now_s
        return True

    def held_back(self) -> int:
        """How many since the message before; asked once, by the message that is let through."""
        count, self._held_back = self._held_back, 0
        return count
