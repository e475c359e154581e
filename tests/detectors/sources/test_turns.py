"""Turns of files that want to be read, in a time that the tests give."""

from __future__ import annotations

import pytest

from detectors.sources.turns import Turns


def test_small_pieces_are_read_at_once_as_long_as_they_are_within_the_rate() -> None:
    turns = Turns(1000)
    for now_s in range(10):
        assert turns.is_free(now_s)
        turns.used(1000, now_s)


def test_turns_come_in_order_and_at_the_rate() -> None:
    turns = Turns(1000)

    waits = [turns.take(500, now_s=7.0) for _ in range(5)]

    assert waits == pytest.approx([0.0, 0.4, 0.9, 1.4, 1.9])
    assert not turns.is_free(8.0)
    assert turns.is_free(9.5)


def test_a_rest_saves_no_turns_for_later() -> None:
    turns = Turns(1000)
    turns.used(1000, 0.0)

    assert [turns.take(1000, now_s=3600.0) for _ in range(3)] == pytest.approx([0.0, 0.9, 1.9])
