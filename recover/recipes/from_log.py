"""Says what a log alone leaves open of a recipe. Pure.

`rekindle read-log` reads nothing but a log: cli/read_log_reading.py asks for each recipe whose lines the log
has. match.py decides with all facts of a failure.
"""

from __future__ import annotations

from collections.abc import Collection

from recover.api.recipe_spec import Comparison, Recipe, Test

__all__ = ["left_open"]


def left_open(recipe: Recipe, shown: Collection[str]) -> tuple[tuple[Test, ...], ...] | None:
    """Returns the clauses that the log does not decide, or that compare its words with a literal, each with
    the tests of which one must be true; None if the log shows that the recipe does not match. `shown` are the
    recipe's templates that lines of the log match."""
    clauses = []
    for clause in recipe.match.all_of:
        tests = clause.any_of or [clause]
        in_log = [test for test in tests if test.log in shown]
        if any(all(map(_is_of_line, test.where)) for test in in_log):
            continue
        rest = (*in_log, *(test for test in tests if not test.log))
        if not rest:
            return None
        clauses.append(rest)
    return tuple(clauses)


def _is_of_line(comparison: Comparison) -> bool:
    """Whether the line has both sides of the comparison, so that `shown` includes its answer."""
    return comparison.left.startswith("{") and comparison.right.startswith("{")
