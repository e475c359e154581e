"""Computes the behaviour of the node's clocks from their values. Pure: the callers read the clocks.

The wall clock may be set, by NTP or by a person. The monotonic clock never jumps. The kernel dates its log by
a third clock, which NTP does not correct: after weeks it is minutes behind or ahead.
"""

from __future__ import annotations

__all__ = ["KernelClock", "WallClock", "until_next_s"]

_STEP_S = 5.0
"""Least difference in seconds that shows that the clock was set. The gradual correction of NTP is far smaller
between two samples."""
_DRIFT_MAX = 2e-4
"""Greatest drift of the kernel's clock, in seconds a second; crystals drift a tenth of that."""


def until_next_s(every_s: float, now_s: float) -> float:
    """Returns the time until the next full period of a clock that is never set. Loops whose periods are
    multiples of each other then wake the process together: a wake-up costs more than the work of the loops. A
    loop that was woken a moment early, or that took most of its period, waits for one period more."""
    rest_s = every_s - now_s % every_s
    return rest_s if rest_s > every_s / 10 else rest_s + every_s


class WallClock:
    """Detects that the wall clock was set. Takes the seconds of both clocks at the beginning."""

    def __init__(self, wall_s: float, monotonic_s: float) -> None:
        self._offset_s = wall_s - monotonic_s

    def set_by_s(self, wall_s: float, monotonic_s: float) -> float:
        """Returns the seconds by which the clock was set since the last sample; 0 if it was not set."""
        step_s = wall_s - monotonic_s - self._offset_s
        if abs(step_s) < _STEP_S:
            return 0.0
        self._offset_s += step_s
        return step_s


class KernelClock:
    """Converts times of the kernel's clock to seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._behind_s = 0.0
        self._known_at_s = 0.0

    def just_showed(self, kernel_s: float, monotonic_s: float) -> None:
        """Takes the time of a record that has come now. If the agent reads the record late, the kernel's
        clock seems to be further behind than it is. The difference is therefore limited to the drift that is
        possible since the last record, or since the boot."""
        lost_s = max(0.0, monotonic_s - self._known_at_s) * _DRIFT_MAX
        self._behind_s = min(monotonic_s - kernel_s, self._behind_s + lost_s)
        self._known_at_s = monotonic_s

    def monotonic_s(self, kernel_s: float) -> float:
        return kernel_s + self._behind_s
