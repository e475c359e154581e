"""Generates the file detectors/catalog/signature_rows.toml, from the built-in recipes. The agent's image
contains no recipes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from detectors.catalog.signature_rows import LogMatch
from detectors.text.log_template import Kind, parse
from recover.api.recipe_spec import Comparison, Recipe, Relation, Test
from recover.recipes.load import built_in

__all__ = ["signatures_file"]

_HEAD = """\
# The lines by which the built-in recipes know their issue. Read by detectors/catalog/signature_rows.py.
#
# Generated from the recipes in recover/recipes/ by `make docs`: change them there.
"""


def signatures_file() -> str:
    return _HEAD + "".join(
        _row(recipe) for recipe in built_in().values() if _verify(recipe) or _matches(recipe)
    )


def _row(recipe: Recipe) -> str:
    lines = ["", "[[signature]]", f"name = {_quoted(recipe.name)}"]
    if matches := _matches(recipe):
        lines += ["match = [", *(f"  {_match(match)}," for match in matches), "]"]
    if verify := _verify(recipe):
        lines.append(f"verify = [{_list(verify)}]")
    lines.append(f"source = {_quoted(f'recover/recipes/{recipe.name}.toml')}")
    return "\n".join(lines) + "\n"


def _verify(recipe: Recipe) -> list[str]:
    return recipe.verify.log if recipe.verify is not None else []


def _matches(recipe: Recipe) -> list[LogMatch]:
    """Returns each template once, with the comparisons that a line decides by itself. If one alternative has
    such comparisons, other alternatives of the same template are left out."""
    tests = [test for clause in recipe.match.all_of for test in (clause, *clause.any_of) if test.log]
    found = [LogMatch(log=test.log, at_least=_pairs(test)) for test in tests]
    decided = {match.log for match in found if match.at_least}
    return list(dict.fromkeys(match for match in found if match.at_least or match.log not in decided))


def _pairs(test: Test) -> tuple[tuple[str, str], ...]:
    kinds = parse(test.log).kinds
    return tuple(_in_order(one) for one in test.where if _are_sizes(one, kinds))


def _are_sizes(comparison: Comparison, kinds: dict[str, Kind]) -> bool:
    """Whether both sides of the comparison are sizes. Otherwise a side is a fact or a value, or both are
    versions."""
    sides = (comparison.left, comparison.right)
    return all(side.startswith("{") and kinds.get(side.strip("{}")) is Kind.SIZE for side in sides)


def _in_order(comparison: Comparison) -> tuple[str, str]:
    """Returns the two names in the order of an at-least comparison: sizes are compared only by at least and
    at most."""
    left, right = comparison.left.strip("{}"), comparison.right.strip("{}")
    return (left, right) if comparison.is_ is Relation.AT_LEAST else (right, left)


def _match(match: LogMatch) -> str:
    pairs = ", ".join(f"[{_list(pair)}]" for pair in match.at_least)
    at_least = f", at_least = [{pairs}]" if pairs else ""
    return f"{{ log = {_quoted(match.log)}{at_least} }}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(text: str) -> str:
    """Returns a basic string of TOML, which escapes in the same way all that JSON escapes."""
    return json.dumps(text, ensure_ascii=False)
