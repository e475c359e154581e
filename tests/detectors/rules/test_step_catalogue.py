"""The rows of steps.toml: each reads its own example, and none costs more time than the length of a line
justifies."""

from __future__ import annotations

import re
import time

import pytest

from detectors.catalog.steps import packaged_steps
from detectors.rules.line_words import without_digits
from detectors.rules.step_lines import Candidate, Metrics, Save, Sign, Total, read
from detectors.rules.wordings import count_of

CATALOG = packaged_steps()
SEARCHED = [*CATALOG.steps, *CATALOG.totals, *CATALOG.saves, *CATALOG.evaluations]


@pytest.mark.parametrize("row", [*CATALOG.steps, *CATALOG.bars], ids=lambda row: row.name)
def test_the_example_of_a_row_is_read_by_that_row(row) -> None:  # type: ignore[no-untyped-def]
    (found,) = (one for one in read(row.example) if isinstance(one, Candidate))

    assert found.name.removeprefix("bar ") == row.name
    assert (found.step, found.strong, found.of_epoch) == (row.reads, True, row.scope == "epoch")


@pytest.mark.parametrize("row", CATALOG.totals, ids=lambda row: row.name)
def test_the_announced_number_of_steps_is_read(row) -> None:  # type: ignore[no-untyped-def]
    assert read(row.example) == (Total(row.reads),)


@pytest.mark.parametrize("row", CATALOG.metrics, ids=lambda row: row.name)
def test_the_figures_that_only_a_training_prints_are_known(row) -> None:  # type: ignore[no-untyped-def]
    assert read(row.example) == (Metrics(row.example[:120]),)


@pytest.mark.parametrize("row", CATALOG.saves, ids=lambda row: row.name)
def test_a_line_that_tells_of_a_checkpoint_is_read(row) -> None:  # type: ignore[no-untyped-def]
    (found,) = (one for one in read(row.example) if isinstance(one, Save))

    assert (found.name, found.step) == (row.name, row.reads)
    assert row.name == "general" or re.search(row.pattern, row.example) is not None


@pytest.mark.parametrize("row", CATALOG.evaluations, ids=lambda row: row.name)
def test_a_line_of_an_evaluation_is_known(row) -> None:  # type: ignore[no-untyped-def]
    (found,) = read(row.example)

    assert isinstance(found, Sign)
    assert found.evaluates


@pytest.mark.parametrize("row", SEARCHED, ids=lambda row: row.name)
def test_a_trigger_is_in_each_line_that_its_pattern_fits(row) -> None:  # type: ignore[no-untyped-def]
    assert row.trigger in row.example.lower()


@pytest.mark.parametrize("row", SEARCHED, ids=lambda row: row.name)
def test_no_line_makes_a_pattern_slow(row) -> None:  # type: ignore[no-untyped-def]
    """A hostile tenant would write such a line: the trigger and the beginning of the example again and
    again."""
    worst_s = 0.0
    for part in (
        row.trigger,
        row.example[: len(row.example) // 2],
        row.example,
        f"{row.trigger}1",
        "step 1 " + row.trigger,
    ):
        line = (part * 4096)[:4096]
        begin_s = time.process_time()
        re.search(row.pattern, line)
        worst_s = max(worst_s, time.process_time() - begin_s)

    assert worst_s < 0.1


def test_counts_are_grouped_or_not() -> None:
    assert (count_of("25,000"), count_of("25000")) == (25000, 25000)


@pytest.mark.parametrize(
    "line",
    [
        "  Number of trainable parameters = 1,000 | saved",
        "Checkpoint format: torch_dist",
        "saving checkpoints every 500 steps",
        "Saving checkpoint took 3.2 secs",
        "no checkpoint was found",
        "loading checkpoint from /ckpt/step-40",
    ],
)
def test_a_line_about_checkpoints_in_general_tells_of_none(line: str) -> None:
    assert not [one for one in read(line) if isinstance(one, Save)]


@pytest.mark.parametrize("row", [*SEARCHED, *CATALOG.metrics], ids=lambda row: row.name)
def test_a_trigger_holds_no_digit_since_lines_are_remembered_without_theirs(row) -> None:  # type: ignore[no-untyped-def]
    assert without_digits(row.trigger) == row.trigger
