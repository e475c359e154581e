"""Turns of files that wait to be read, in a time that the tests set."""

from __future__ import annotations

import pytest

from detectors.sources.turns import Turns


def test_small_pieces_are_read_at_once_as_long_as_they_are_within_the_rate() -> None:
    turns = Turns(1000)
    for now_s in range(10):
        assert turns.wait_s(now_s) == 0.0
        turns.used(1000, 0.0, now_s)


def test_pieces_come_at_the_rate() -> None:
    turns = Turns(1000)

    waits = []
    for _ in range(5):
        waits.append(turns.wait_s(7.0))
        turns.used(500, 0.0, 7.0)

    assert waits == pytest.approx([0.0, 0.4, 0.9, 1.4, 1.9])
    assert turns.wait_s(9.5) == 0.0


def test_a_rest_saves_no_turns_for_later() -> None:
    turns = Turns(1000)
    turns.used(1000, 0.0, 0.0)

    waits = []
    for _ in range(3):
        waits.append(turns.wait_s(3600.0))
        turns.used(1000, 0.0, 3600.0)

    assert waits == pytest.approx([0.0, 0.9, 1.9])


def test_what_takes_long_takes_half_a_core_at_most_however_few_bytes_it_has() -> None:
    """Short step lines of hostile pods are parsed at a hundredth of the speed of other lines."""
    turns, now_s, worked_s = Turns(4e6), 0.0, 0.0
    while now_s < 100.0:
        now_s += turns.wait_s(now_s)
        turns.used(64 * 1024, 0.07, now_s)
        now_s, worked_s = now_s + 0.07, worked_s + 0.07

    assert worked_s / now_s == pytest.approx(0.5, abs=0.02)
