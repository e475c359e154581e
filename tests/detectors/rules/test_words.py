"""The agent's memory of a line's words hides nothing in the line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.catalog.log_errors import packaged_log_errors
from detectors.catalog.signature_rows import packaged_signatures
from detectors.catalog.steps import packaged_steps
from detectors.rules import signatures, step_lines, wordings
from detectors.rules.error_lines import compiled, row_in
from detectors.rules.line_words import REMEMBERED_CHARS_MAX, by_words, without_digits
from detectors.text.log_template import line_of, parse

ROWS = packaged_log_errors()
ERRORS = compiled(ROWS)
PATTERNS = [pattern for row in ROWS for pattern in row.patterns]
STEPS = packaged_steps()
EXAMPLES = [
    row.example
    for rows in (STEPS.steps, STEPS.bars, STEPS.totals, STEPS.metrics, STEPS.saves, STEPS.evaluations)
    for row in rows
]
TEXT = st.text(st.sampled_from("0159 aeEIrs=:[(<%\n\x1b"), max_size=8)


def searched(line: str) -> int | None:
    """Returns the same row as `row_in`, by a search for each pattern."""
    return next((place for place, row in enumerate(ROWS) if any(one in line for one in row.patterns)), None)


def with_other_numbers(line: str, by: int) -> str:
    return re.sub(r"\d+", lambda found: str(int(found[0]) + by), line)


@given(TEXT, st.sampled_from(PATTERNS), TEXT)
def test_a_literal_without_digits_stands_in_each_line_without_digits_that_holds_it(
    before: str, literal: str, behind: str
) -> None:
    assert without_digits(literal) in without_digits(before + literal + behind)


def test_what_is_remembered_is_bounded() -> None:
    asked: list[str] = []
    found = by_words(lambda words: asked.append(words) or len(asked))  # type: ignore[func-returns-value]

    first = found("first")
    for number in range(2000):
        found("x" * (number % 400) + "yz"[number % 2] * (number // 400))
    assert found("first") > first


def test_lines_with_the_same_words_are_searched_once_and_long_ones_each_time() -> None:
    asked: list[str] = []
    found = by_words(lambda words: asked.append(words) or len(asked))  # type: ignore[func-returns-value]

    assert [found("step 1 of 9"), found("step 22 of 9"), found("step 1")] == [1, 1, 2]
    long = "x" * (REMEMBERED_CHARS_MAX + 1)
    assert [found(long), found(long)] == [3, 4]
    assert asked == ["step  of ", "step ", long, long]


@pytest.mark.parametrize("around", ["7{}8", "[rank3]: 12 {} 34", "{}" + " 5" * REMEMBERED_CHARS_MAX])
def test_each_pattern_of_an_error_is_found_whatever_numbers_stand_around_it(around: str) -> None:
    lines = [around.format(pattern) for pattern in PATTERNS]

    assert [row_in(ERRORS, line) for line in lines] == [searched(line) for line in lines]


@given(st.lists(st.sampled_from(PATTERNS) | TEXT, max_size=4).map("".join))
def test_any_line_is_read_as_by_a_search_for_each_pattern(line: str) -> None:
    assert row_in(ERRORS, line) == searched(line)


def test_errors_that_differ_in_a_number_only_are_told_apart() -> None:
    """NCCL's `status=12` is a lost peer, and `status=5` is the consequence of another error."""
    line = "NET/IB: Got completion from peer with status={} opcode=0"

    for status in (12, 5, 12, 99, 10):
        assert row_in(ERRORS, line.format(status)) == searched(line.format(status))


def near(line: str) -> step_lines.Near:
    """Returns the triggers in the line, with the line's digits."""
    lower = line.lower()
    return step_lines.Near(
        steps=tuple(n for n, row in enumerate((*STEPS.steps, *STEPS.totals)) if row.trigger in lower),
        metrics=tuple(n for n, row in enumerate(STEPS.metrics) if row.trigger in lower),
        saves=tuple(n for n, row in enumerate(STEPS.saves) if row.trigger in lower),
        evaluations=tuple(n for n, row in enumerate(STEPS.evaluations) if row.trigger in lower),
        bar=True,
        wording=True,
    )


@pytest.mark.parametrize("by", [0, 1, 90_000])
def test_each_row_of_steps_is_read_as_by_a_search_for_each_trigger(
    by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [with_other_numbers(example, by) for example in EXAMPLES]
    lines += [f"[rank{by}]: {line}" for line in lines] + [line.upper() for line in lines]
    lines += ["step 3 loss 0.5", "Epoch 1 batch 20/300 loss 0.1", "Evaluating 3", "nothing of the kind"]
    found = [step_lines.read(line) for line in lines]

    monkeypatch.setattr(step_lines, "_near", near)

    assert found == [step_lines.read(line) for line in lines]


@pytest.mark.parametrize("behind", ["", " 7" * REMEMBERED_CHARS_MAX])
def test_each_template_of_a_recipe_is_looked_for_whatever_numbers_stand_in_the_line(behind: str) -> None:
    sought = signatures.signatures_of(packaged_signatures())

    for row in packaged_signatures():
        for written in [*(match.log for match in row.match), *row.verify]:
            head = parse(written).head
            line = line_of(f"3 {head.upper()}{behind}").text
            assert written in [one.written for one in sought.near(line)]


WORDS = st.sampled_from(
    [
        "warm up",
        "Resumed",
        "val",
        "test",
        "from",
        "eval3",
        "at",
        "to",
        "ckpt",
        "epoch 3",
        "train",
        "12",
        ",",
        "tat",
    ]
)


@given(st.lists(WORDS, max_size=5).map(" ".join))
def test_a_step_that_is_only_told_is_known_as_without_memory(head: str) -> None:
    line = f"{head} step 12 loss 0.5"
    found = wordings.wording_in(line, line.lower())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wordings, "_may_be_told", lambda _: True)
        assert wordings.wording_in(line, line.lower()) == found
