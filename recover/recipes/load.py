"""Loads recipes from files: built-in recipes, and recipes that people wrote. One bad file never stops the
others.

A file is TOML, or a Recipe object in YAML or JSON, as kubectl applies and prints it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import msgspec
import yaml

from recover.api.recipe_spec import Recipe
from recover.recipes.check_match import Problem
from recover.recipes.convert import RecipeError, checked, converted
from recover.recipes.objects import from_object

__all__ = ["Loaded", "built_in", "built_in_text", "is_yaml", "load", "parse", "parse_yaml", "read"]

_FILE_BYTES_MAX = 64 * 1024


class Loaded(msgspec.Struct, frozen=True):
    """The valid recipes by name, and the errors of the recipes that are not used."""

    recipes: dict[str, Recipe]
    errors: tuple[RecipeError, ...]


def built_in() -> dict[str, Recipe]:
    """Returns the recipes of this package, by name. Raises `RecipeError`; the package contains no recipe that
    raises it."""
    return {name: parse(built_in_text(name), f"{name}.toml") for name in _built_in_names()}


def built_in_text(name: str) -> str:
    """Returns the text of a built-in recipe's file. Raises KeyError."""
    if name not in _built_in_names():
        raise KeyError(name)
    return resources.files("recover.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def read(path: Path) -> Recipe:
    """Returns the recipe in a file that people wrote. Raises `RecipeError`."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise RecipeError(str(path), [f"cannot be read: {error.strerror}: expected TOML or YAML"]) from error
    if len(data) > _FILE_BYTES_MAX:
        raise RecipeError(str(path), [f"too long: expected at most {_FILE_BYTES_MAX} bytes"])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"line {line}: value {data[error.start : error.start + 1]!r}: expected UTF-8 text"
        raise RecipeError(str(path), [found]) from error
    return parse_yaml(text, str(path)) if is_yaml(path) else parse(text, str(path))


def load(paths: Iterable[Path]) -> Loaded:
    """Returns the built-in recipes and those of the files and folders (their *.toml). As with objects, a
    recipe with the name of a built-in recipe replaces the built-in one. If several files have recipes of the
    same name, the first one is used."""
    recipes, errors = built_in(), []
    origin: dict[str, str] = {}
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
    """Returns the recipe files of a path. A folder without recipes is returned itself, and reading it reports
    the error."""
    return (sorted(path.glob("*.toml")) if path.is_dir() else []) or [path]


def parse(text: str, file: str) -> Recipe:
    """Returns one recipe from its TOML; `file` is for messages. Raises `RecipeError`."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # also for a number with more digits than Python converts
        raise RecipeError(file, [f"not valid TOML: {error}"]) from error
    except RecursionError as error:
        raise RecipeError(file, ["not valid TOML: nested too deeply"]) from error
    return checked(converted(data, Recipe, file), file)


def parse_yaml(text: str, file: str) -> Recipe:
    """Returns one recipe from the YAML of its object; `file` is for messages. Raises `RecipeError`."""
    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        found = " ".join(filter(None, (error.context, error.problem)))
        raise RecipeError(file, [f"not valid YAML: line {line}: {found}"]) from error
    except (yaml.YAMLError, ValueError) as error:  # also for a date that does not exist
        raise RecipeError(file, [f"not valid YAML: {' '.join(str(error).split())}"]) from error
    except RecursionError as error:
        raise RecipeError(file, ["not valid YAML: nested too deeply"]) from error
    return from_object(data, file)


def is_yaml(path: Path) -> bool:
    """Whether the file is read as YAML. JSON is YAML, too."""
    return path.suffix in (".yaml", ".yml", ".json")
