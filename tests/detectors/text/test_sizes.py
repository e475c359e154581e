"""Amounts of memory in the words of messages."""

from __future__ import annotations

import pytest

from detectors.text.sizes import size_words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1023 * 1024, "1023 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (120 * 2**40, "120 TiB"),
    ],
)
def test_a_size_has_the_largest_unit_of_which_there_is_one_after_rounding(count: int, words: str) -> None:
    assert size_words(count) == words
