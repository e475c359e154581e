"""Printing of text from others."""

from __future__ import annotations

import pytest

from detectors.text.printing import MARKS_MAX, one_line, printable


def test_control_codes_are_replaced_and_lines_stay() -> None:
    assert printable("a\x1b[2J\tb\nc") == "a\ufffd[2J    b\nc"


@pytest.mark.parametrize("blank", ["\u115f", "\u1160", "\u2800", "\u3164", "\uffa0", "\U0001d159"])
def test_letters_that_are_drawn_as_nothing_make_no_row_of_their_own(blank: str) -> None:
    """A hundred such letters fill the row of a terminal, and the text after them would begin the next row."""
    assert blank.isprintable()
    assert one_line(f"x{blank * 100}Who is to blame: n7") == "x Who is to blame: n7"
    assert printable(f"x{blank}y\n") == "x y\n"


def test_marks_that_would_strike_other_text_out_are_cut_and_languages_are_not() -> None:
    words = "Tie\u0302\u0301ng \u0e17\u0e35\u0e48 \u05d1\u05bc\u05b0\u05a5"
    assert printable(words) == one_line(words) == words

    for mark in ("\u0336", "\u20dd"):
        assert printable("x" + 300 * mark + "y") == "x" + MARKS_MAX * mark + "y"
