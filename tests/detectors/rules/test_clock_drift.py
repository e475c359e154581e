"""The deviation of the node's clock, as far as the answers of an API server with a true clock bound it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.rules.clock_drift import Answered, Drift, difference

TRUE_S = 1_795_000_000.0


def answer(ahead_s: float, *, at_s: float = 0.0, there_s: float = 0.01, back_s: float = 0.01) -> Answered:
    """Returns an answer to a node whose clock is `ahead_s` ahead of the server's. The request takes some time
    there, and back."""
    sent_s = TRUE_S + at_s
    date = format_datetime(datetime.fromtimestamp(int(sent_s + there_s), UTC), usegmt=True)
    took_s = there_s + back_s
    return Answered(date, sent_s + ahead_s, sent_s + ahead_s + took_s, took_s)


def told(*answers: Answered, limit_s: float = 2.0) -> str:
    drift = Drift()
    for one in answers:
        drift = drift.with_answer(one)
    return drift.beyond(limit_s)


def test_three_answers_that_agree_are_told_with_their_interval() -> None:
    answers = [answer(-30.0, at_s=at_s) for at_s in (0.1, 300.5, 600.9)]
    assert told(*answers[:2]) == ""
    text = told(*answers)
    assert text.startswith("the node's clock is 29.")
    assert text.endswith(" s behind the API server's, as 3 answers agree")
    assert "ahead of the API server's" in told(*[answer(30.0, at_s=at) for at in (0, 300, 600)])


def test_answers_that_contradict_each_other_begin_again() -> None:
    """There are two API servers behind one address, one of which has a wrong clock."""
    answers = [answer(0.0 if number % 2 else -60.0, at_s=300.0 * number) for number in range(20)]
    assert told(*answers) == ""


def test_a_slow_answer_proves_little_and_one_over_a_step_of_the_clock_nothing() -> None:
    assert told(*[answer(5.0, at_s=at, there_s=9.0) for at in (0, 300, 600)]) == ""
    stepped = Answered(answer(0.0).date, TRUE_S, TRUE_S + 60.0, 0.02)
    assert difference(stepped) is None
    assert difference(Answered("yesterday", 0.0, 0.0, 0.0)) is None
    assert difference(Answered("", 0.0, 0.0, 0.0)) is None


@settings(max_examples=300, deadline=None)
@given(
    st.floats(-1.9, 1.9),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 20), st.floats(0, 20)), min_size=1, max_size=20),
)
def test_no_answers_of_whatever_speed_accuse_a_clock_within_the_limit(
    ahead_s: float, answers: list[tuple[float, float, float]]
) -> None:
    drift = Drift()
    for number, (part_s, there_s, back_s) in enumerate(answers):
        one = answer(ahead_s, at_s=300.0 * number + part_s, there_s=there_s, back_s=back_s)
        drift = drift.with_answer(one)
        assert drift.beyond(2.0) == ""
        assert drift.least_s - 1e-3 <= -ahead_s <= drift.most_s + 1e-3, "the truth lies within"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_no_header_ends_the_agent(text: str) -> None:
    difference(Answered(text, TRUE_S, TRUE_S, 0.0))
