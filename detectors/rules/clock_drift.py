"""Bounds the difference between the node's clock and the API server's from answers of the API server. Pure.

An answer contains the server's time in whole seconds, and was made between the moment of the node's request
and the moment when the answer came. So each answer gives an interval for the difference. The true difference
is in all intervals, as long as neither clock is set. Answers that contradict each other, for example from two
API servers whose clocks differ, begin a new series. Only several answers that agree are reported.
Source: RFC 9110, 6.6.1 (Date) and 5.6.7 (whole seconds).
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

__all__ = ["Answered", "Drift", "difference"]

_ANSWERS_MIN = 3
_ANSWERS_MAX = 16
_CLOCK_STEP_S = 0.5


class Answered(msgspec.Struct, frozen=True):
    """One answer of the API server, with the times of the request and the answer by the node's clocks."""

    date: str
    """The header `Date`."""
    asked_s: float
    """Seconds since 1970, before the request was sent."""
    answered_s: float
    took_s: float
    """Time between request and answer, by a clock that is never set."""


def difference(answer: Answered) -> tuple[float, float] | None:
    """Returns the number of seconds by which the server's clock is ahead, at least and at most. Returns None
    if it cannot be computed."""
    if abs(answer.answered_s - answer.asked_s - answer.took_s) > _CLOCK_STEP_S:
        return None  # the node's clock was set meanwhile
    try:
        date = parsedate_to_datetime(answer.date)
    except (TypeError, ValueError, OverflowError):
        return None
    server_s = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    return server_s - answer.answered_s, server_s + 1.0 - answer.asked_s


class Drift(msgspec.Struct, frozen=True):
    """The interval on which the answers so far agree."""

    least_s: float = float("-inf")
    most_s: float = float("inf")
    answers: int = 0

    def with_answer(self, answer: Answered) -> Drift:
        bounds = difference(answer)
        if bounds is None:
            return self
        least_s, most_s = max(self.least_s, bounds[0]), min(self.most_s, bounds[1])
        if least_s > most_s or self.answers >= _ANSWERS_MAX:  # the clocks may have diverged since
            return Drift(*bounds, 1)
        return Drift(least_s, most_s, self.answers + 1)

    def beyond(self, limit_s: float) -> str:
        """Returns a text if the clocks certainly differ by more than the limit; otherwise an empty one."""
        if self.answers < _ANSWERS_MIN:
            return ""
        if self.least_s > limit_s:
            way = "behind"
        elif self.most_s < -limit_s:
            way = "ahead of"
        else:
            return ""
        low, high = sorted((abs(self.least_s), abs(self.most_s)))
        apart = f"{low:.1f} to {high:.1f} s"
        return f"the node's clock is {apart} {way} the API server's, as {self.answers} answers agree"

    def within(self, limit_s: float) -> bool:
        """Whether enough answers agree that the clocks may be within the limit."""
        return self.answers >= _ANSWERS_MIN and self.least_s <= limit_s and self.most_s >= -limit_s
