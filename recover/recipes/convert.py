"""Converts plain data into the types of a recipe, or reports what is wrong and which values are allowed.
Pure.

load.py passes data from files, objects.py passes data from the API server; check.py checks what types cannot
express.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from detectors.text.strict import BadValueError, convert
from detectors.wire.contract import Fault
from recover.api.recipe_spec import (
    Change,
    Clause,
    Comparison,
    EnvIs,
    EnvTest,
    Framework,
    Hold,
    LabelRule,
    Match,
    Placement,
    Recipe,
    RecipeSpec,
    Relation,
    RequestIs,
    RequestTest,
    Test,
    Verify,
)
from recover.recipes.check import problems
from recover.recipes.check_match import Problem

__all__ = ["RecipeError", "checked", "converted"]

T = TypeVar("T")

_INDEX = re.compile(r"\[\d+\]")

# Allowed values, by the last parts of a field's path. msgspec's own messages name neither values nor fields.
_CHOICES: dict[str, type[StrEnum]] = {
    "fault": Fault,
    "framework": Framework,
    "hold": Hold,
    "request.is": RequestIs,
    "env.is": EnvIs,
    "compare.is": Relation,
    "where.is": Relation,
}
_PARTS: dict[str, type[msgspec.Struct]] = {
    "": Recipe,
    "spec": RecipeSpec,
    "match": Match,
    "allOf": Clause,
    "anyOf": Test,
    "where": Comparison,
    "compare": Comparison,
    "request": RequestTest,
    "env": EnvTest,
    "label": LabelRule,
    "change": Change,
    "placement": Placement,
    "require": LabelRule,
    "forbid": LabelRule,
    "verify": Verify,
}


class RecipeError(Exception):
    """A file or object that cannot be used, and everything that is wrong with it. Other recipes are still
    used."""

    def __init__(self, origin: str, what: Iterable[str]) -> None:
        self.origin = origin
        self.what = tuple(what)
        self.lines = tuple(f"{origin}: {text}; Rekindle does not use this recipe" for text in self.what)
        super().__init__("\n".join(self.lines))


def converted(data: Any, type_: type[T], origin: str) -> T:
    """Returns the data as the type. `origin` is the file or object, for messages. Raises `RecipeError`."""
    try:
        return convert(data, type_, file=origin)
    except BadValueError as error:
        raise RecipeError(origin, [str(_explained(error))]) from error


def checked(recipe: Recipe, origin: str, *, of_object: bool = False) -> Recipe:
    """Returns the recipe if it is valid. In an object the fields of a recipe are under `spec`, and its name
    is in `metadata`. Raises `RecipeError`."""
    found = problems(recipe)
    if of_object:
        found = tuple(
            msgspec.structs.replace(one, field=f"{'metadata' if one.field == 'name' else 'spec'}.{one.field}")
            for one in found
        )
    if found:
        raise RecipeError(origin, map(str, found))
    return recipe


def _explained(error: BadValueError) -> Problem:
    """Returns the problem with the allowed values or fields, which msgspec leaves out."""
    path = _INDEX.sub("", error.field)
    expected = error.expected
    if "enum value" in expected:
        choices = next(enum for end, enum in _CHOICES.items() if path.endswith(end))
        expected = f"expected one of {', '.join(choices)}"
    elif expected.startswith("no such field"):
        part = _PARTS[path.rpartition(".")[0].rpartition(".")[2]]
        expected = f"no such field; expected one of {', '.join(part.__struct_encode_fields__)}"
    elif expected == "expected `object`, got `array`":
        name = path.removeprefix("spec.")
        expected += f" (in TOML one table [{name}], not a list [[{name}]])"
    return Problem(error.field, error.value, expected)
