"""How far the node's clock is from the API server's, as answers of the API server bound it. Pure.

An answer says the server's time in whole seconds, and was made between the moment when the node asked and the
moment when the answer came. So each answer gives an interval for the difference. The true difference lies in
all of them, as long as neither clock is set: answers that contradict each other begin again, as those of two
API servers whose clocks differ do. Only several answers that agree are told.
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
    """One answer of the API server, and when it was asked for, by the node's clocks."""

    date: str
    """The header `Date`."""
    asked_s: float
    """Seconds since 1970, before the request was sent."""
    answered_s: float
    took_s: float
    """The same time by a clock that nobody sets."""


def difference(answer: Answered) -> tuple[float, float] | None:
    """By how many seconds the server's clock is ahead, at least and at most. None where it cannot be said."""
    if abs(answer.answered_s - answer.asked_s - answer.took_s) > _CLOCK_STEP_S:
        return None  # the node's clock was set meanwhile
    try:
        date = parsedate_to_datetime(answer.date)
    except (TypeError, ValueError, OverflowError):
        return None
    server_s = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    return server_s - answer.answered_s, server_s + 1.0 - answer.asked_s


class Drift(msgspec.Struct, frozen=True):
    """What the answers so far agree on."""

    least_s: float = float("-inf")
    most_s: float = float("inf")
    answers: int = 0

    def with_answer(self, answer: Answered) -> Drift:
        bounds = difference(answer)
        if bounds is None:
            return self
        least_s, most_s = max(self.least_s, bounds[0]), min(self.most_s, bounds[1])
        if least_s > most_s or self.answers >= _ANSWERS_MAX:  # or the clocks may have gone apart since
            return Drift(*bounds, 1)
        return Drift(least_s, most_s, self.answers + 1)

    def beyond(self, limit_s: float) -> str:
        """In words, where the clocks are certainly further apart; else empty."""
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
        """Whether enough answers agree that the clocks may be that close."""
        return self.answers >= _ANSWERS_MIN and self.least_s <= limit_s and self.most_s >= -limit_s
