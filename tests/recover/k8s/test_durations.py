"""Tests durations that people of any namespace write. The controller parses them at each reconcile pass
over their jobs."""

from __future__ import annotations

import pytest

from recover.k8s.durations import parse_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("10m", 600.0),
        ("24h", 86_400.0),
        ("1h30m", 5400.0),
        ("off", 0.0),
        ("0", 0.0),
        (" 5M ", 300.0),
    ],
)
def test_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "999999999d", "1s" * 33, "1s" * 130_900])
def test_what_is_none_or_longer_than_any_time(text: str) -> None:
    assert parse_s(text) is None
