"""Tests tables and stories on a terminal: no word is broken, and nothing is wider than the terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recover.cli.layout import filled, table_lines

NAME = "node-17-device-lost-1a2b3c4d"
WORDS = st.lists(st.text("abc-/.", min_size=1, max_size=30), max_size=12).map(" ".join)


def test_on_a_pipe_each_row_is_one_whole_line() -> None:
    rows = [("a", "b " * 200), ("aaa", "c")]
    header, first, second = table_lines(("ONE", "TWO"), rows, None)
    assert header == "ONE  TWO"
    assert first == "a    " + ("b " * 200).rstrip()
    assert second == "aaa  c"


def test_a_long_cell_is_wrapped_between_words() -> None:
    lines = table_lines(("INCIDENT", "WHAT"), [(NAME, "GPU 3 fell off the bus " * 5)], 80)
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80
    assert NAME in lines[1]


def test_a_row_whose_words_do_not_fit_beside_each_other_is_told_field_by_field() -> None:
    lines = table_lines(("ONE", "TWO", "THREE"), [(NAME, NAME, ""), (NAME, NAME, NAME)], 60)
    assert lines == [
        f"ONE:   {NAME}",
        f"TWO:   {NAME}",
        "",
        f"ONE:   {NAME}",
        f"TWO:   {NAME}",
        f"THREE: {NAME}",
    ]


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(50, 120))
def test_no_word_is_lost_or_broken_and_no_line_is_too_wide(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table_lines(("ONE", "TWO", "THREE"), rows, width)

    told = " ".join(lines).split()
    for row in rows:
        for cell in row:
            for word in cell.split():
                assert word in told
    assert all(len(line) <= width for line in lines)


@given(WORDS, st.integers(40, 120))
def test_a_paragraph_keeps_its_words(text: str, width: int) -> None:
    lines = filled(text, width, "  - ", "    ")
    assert " ".join(lines).split() == ["-", *text.split()]
    assert all(len(line) <= width for line in lines)
