"""A message that each line of a source could cause is logged seldom, and says how many were suppressed."""

from __future__ import annotations

from detectors.service.rate_limit import RateLimit


def test_one_message_a_minute_tells_how_many_were_held_back() -> None:
    limit = RateLimit(every_s=60)

    told = [(now_s, limit.take_held_back()) for now_s in range(181) if limit.may_tell(now_s)]

    assert told == [(0, 0), (60, 59), (120, 59), (180, 59)]
