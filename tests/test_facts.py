"""Tests tests/facts.py, on which many assertions depend."""

from __future__ import annotations

import pytest

from tests.facts import each_names, missing


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("node-3: 4 of 8 ranks run.", "node-3"),
        ("node-3: 4 of 8 ranks run.", 4),
        ("it waits 0.5 s.", "0.5 s"),
        ("see `kubectl cordon n1`", "`kubectl cordon n1`"),
        ("pass --write (it writes)", "--write"),
        ("value '': expected a path", "''"),
        ("at /ckpt/step-40, which is whole", "/ckpt/step-40"),
    ],
)
def test_a_fact_is_found_whatever_stands_around_it(text: str, fact: str | int) -> None:
    assert missing(text, fact) == []


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("node-31 is out", "node-3"),
        ("my-node-3 is out", "node-3"),
        ("node-3-device-lost is open", "node-3"),
        ("it waits 4.5 s", 4),
        ("it waits 4.5 s", 5),
        ("40 ranks", 4),
        ("pass --write-all", "--write"),
        ("", "node-3"),
    ],
)
def test_a_part_of_a_name_or_number_is_not_that_fact(text: str, fact: str | int) -> None:
    assert missing(text, fact) == [str(fact)]


def test_each_line_must_name_its_own_facts_in_order() -> None:
    lines = ["n1 is out", "n2 is back"]

    assert each_names(lines, ("n1",), ("n2",))
    assert not each_names(lines, ("n2",), ("n1",))
    assert not each_names(lines, ("n1",))
    assert not each_names(lines, ("n1",), ("n2",), ())
