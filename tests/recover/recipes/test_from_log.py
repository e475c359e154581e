"""Tests what a log alone leaves open of a recipe."""

from __future__ import annotations

from recover.recipes.from_log import left_open
from recover.recipes.load import parse
from tests.facts import names

RECIPE = parse(
    """
name = "both"
title = "An issue of two lines"
source = "a test of this project"

[[match.allOf]]
request = { name = "example.com/share", is = "requested" }

[[match.allOf]]
anyOf = [{ log = "no memory" }, { exitCode = 139 }]

[[match.allOf]]
anyOf = [
  { log = "wants memory {size:size}", where = [{ left = "{size}", is = "at-least", right = "1GiB" }] },
  { log = "wants nothing of it" },
]

[change]
advise = "Do it."
""",
    "both.toml",
)


def opened(*shown: str) -> list[list[object]] | None:
    clauses = left_open(RECIPE, shown)
    return None if clauses is None else [[t.request or t.exit_code or t.log for t in c] for c in clauses]


def test_a_clause_that_the_log_fulfils_is_not_open() -> None:
    request, *rest = opened("no memory", "wants nothing of it") or []

    assert rest == []
    assert names(str(request), "example.com/share")


def test_a_clause_with_another_alternative_is_open_and_one_of_logs_excludes_the_recipe() -> None:
    _, exit_code = opened("wants nothing of it") or []

    assert exit_code == [139]
    assert opened("no memory") is None


def test_a_line_with_a_comparison_of_a_fact_is_open() -> None:
    _, compared = opened("no memory", "wants memory {size:size}") or []

    assert compared == ["wants memory {size:size}"]
