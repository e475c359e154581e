"""Recipes from TOML files: the built-in ones, and people's own. One bad file never stops the others."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from enum import StrEnum
from importlib import resources
from pathlib import Path

import msgspec

from detectors.contract import Fault
from detectors.strict import BadValueError, convert
from recover.recipes.check import problems
from recover.recipes.check_match import Problem
from recover.recipes.model import (
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
    Relation,
    RequestIs,
    RequestTest,
    Test,
    Verify,
)

__all__ = ["Loaded", "RecipeError", "built_in", "built_in_text", "load", "parse", "read"]

_FILE_BYTES_MAX = 64 * 1024
_INDEX = re.compile(r"\[\d+\]")

# The last parts of a field's path -> what may stand there. msgspec's own messages name neither.
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
    """A file that cannot be used, and everything that is wrong with it. Others are not concerned."""

    def __init__(self, file: str, what: Iterable[str]) -> None:
        self.file = file
        self.lines = tuple(f"{file}: {text}; this recipe is not used, all others are" for text in what)
        super().__init__("\n".join(self.lines))


class Loaded(msgspec.Struct, frozen=True):
    """The good ones, by name, and why the others are not used."""

    recipes: dict[str, Recipe]
    errors: tuple[RecipeError, ...]


def built_in() -> dict[str, Recipe]:
    """The recipes of this package, by name. Raises `RecipeError`: we ship none that is bad."""
    return {name: parse(built_in_text(name), f"{name}.toml") for name in _built_in_names()}


def built_in_text(name: str) -> str:
    """The file of a built-in recipe. Raises KeyError."""
    if name not in _built_in_names():
        raise KeyError(name)
    return resources.files("recover.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def read(path: Path) -> Recipe:
    """One recipe of a person's own. Raises `RecipeError`."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise RecipeError(str(path), [f"cannot be read: {error.strerror}: expected a TOML file"]) from error
    if len(data) > _FILE_BYTES_MAX:
        raise RecipeError(str(path), [f"too long: expected at most {_FILE_BYTES_MAX} bytes"])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"line {line}: value {data[error.start : error.start + 1]!r}: expected UTF-8 text"
        raise RecipeError(str(path), [found]) from error
    return parse(text, str(path))


def load(paths: Iterable[Path]) -> Loaded:
    """The built-in recipes and those of the files and folders (their *.toml). The first of a name is used."""
    recipes, errors = built_in(), []
    origin = dict.fromkeys(recipes, "a built-in recipe")
    for path in (file for given in paths for file in _files(given)):
        try:
            recipe = read(path)
        except RecipeError as error:
            errors.append(error)
            continue
        if recipe.name in origin:
            taken = Problem(
                "name", repr(recipe.name), f"expected a name of its own, {origin[recipe.name]} has it"
            )
            errors.append(RecipeError(str(path), [str(taken)]))
            continue
        recipes[recipe.name] = recipe
        origin[recipe.name] = str(path)
    return Loaded(recipes, tuple(errors))


def _built_in_names() -> list[str]:
    files = resources.files("recover.recipes").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def _files(path: Path) -> list[Path]:
    """A folder without recipes stands for itself, and is told when it is read."""
    return (sorted(path.glob("*.toml")) if path.is_dir() else []) or [path]


def parse(text: str, file: str) -> Recipe:
    """One recipe from its text; `file` is for messages. Raises `RecipeError`."""
    try:
        recipe = convert(tomllib.loads(text), Recipe, file=file)
    except BadValueError as error:
        raise RecipeError(file, [str(_explained(error))]) from error
    except ValueError as error:  # also a number with more digits than Python converts
        raise RecipeError(file, [f"not valid TOML: {error}"]) from error
    except RecursionError as error:
        raise RecipeError(file, ["not valid TOML: nested too deeply"]) from error
    if found := problems(recipe):
        raise RecipeError(file, map(str, found))
    return recipe


def _explained(error: BadValueError) -> Problem:
    """With the words or fields that may stand there, which msgspec leaves out."""
    path = _INDEX.sub("", error.field)
    expected = error.expected
    if "enum value" in expected:
        choices = next(enum for end, enum in _CHOICES.items() if path.endswith(end))
        expected = f"expected one of {', '.join(choices)}"
    elif expected.startswith("no such field"):
        part = _PARTS[path.rpartition(".")[0].rpartition(".")[2]]
        expected = f"no such field; expected one of {', '.join(part.__struct_encode_fields__)}"
    return Problem(error.field, error.value, expected)
