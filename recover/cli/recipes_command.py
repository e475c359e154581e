"""`rekindle recipes`: lists known issues, checks a recipe file, and tries a recipe on a log. The command
changes nothing."""

from __future__ import annotations

import difflib
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Meta

from detectors.commands.exit_status import Exit, closing
from detectors.text.answers import Answer
from detectors.text.printing import printable
from recover.api.recipe import RecipeObject
from recover.api.recipe_spec import Hold, Recipe
from recover.cli.options import HELP_NAMES, Format, Json, run_app
from recover.cli.output import Output, print_answer, print_data
from recover.cli.plain_console import plain_console
from recover.cli.telling import print_story, print_table
from recover.recipes.convert import RecipeError
from recover.recipes.given import InputError, evidence
from recover.recipes.load import built_in, built_in_text, is_yaml, load, read
from recover.recipes.match import Hit, Matched, NotMatched, templates_of
from recover.recipes.match import match as matched
from recover.recipes.objects import to_object
from recover.stories.known_issue import change_of, story, story_of_answer, verified
from recover.stories.overview_tables import Table

__all__ = ["RecipesAnswer", "TestAnswer", "run"]


class Shown(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    TOML = "toml"
    NAME = "name"


class RecipesAnswer(Answer, frozen=True, kw_only=True, tag="RecipeList"):
    """The answer of `rekindle recipes list`."""

    items: Annotated[list[RecipeObject], Meta(description="each recipe as an object for `kubectl apply`")]

    def names(self) -> tuple[str, ...]:
        return tuple(one.metadata.name for one in self.items)


class TestAnswer(Answer, frozen=True, kw_only=True, tag="RecipeTest"):
    """The answer of `rekindle recipes test`."""

    recipe: str
    matches: bool
    hits: Annotated[list[Hit], Meta(description="clauses that are true")]
    missing: Annotated[
        list[list[str]],
        Meta(description="for each clause that is not true, the reason for each of its alternatives"),
    ]
    captured: Annotated[dict[str, str], Meta(description="values of the placeholders")]
    explicit_env: Annotated[
        dict[str, str], Meta(description="variables of the change that the template sets itself")
    ]
    change: Annotated[list[str], Meta(description="what Rekindle would change, in words, and the cost")]
    verify: Annotated[
        list[str], Meta(description="how Rekindle would verify that the change helped, in words")
    ]

    def names(self) -> tuple[str, ...]:
        return (self.recipe,) if self.matches else ()


Name = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="The name of a built-in recipe, or a file: TOML, or an object in YAML or JSON."
    ),
]
Texts = list[str]

_app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=HELP_NAMES,
    help="List known issues: how to recognise an issue, what to change, and how to verify that the "
    "change helped.",
)


def run(args: list[str]) -> int:
    """Returns the exit status."""
    return run_app(_app, args, "recipes")


@_app.command("list", epilog=closing("recipes list"), context_settings=HELP_NAMES)
def _list(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Your own recipes: files, or folders of *.toml."),
    ] = None,
    output: Format = Output.TABLE,
    json: Json = False,
) -> None:
    """List the built-in recipes and your own. Standard error names each recipe that cannot be used."""
    loaded = load(paths or [])
    recipes = [loaded.recipes[name] for name in sorted(loaded.recipes)]
    output = Output.JSON if json else output
    if output.for_people:
        print_table(plain_console(), _table(recipes, wide=output is Output.WIDE))
    else:
        items = [msgspec.convert(to_object(recipe), RecipeObject) for recipe in recipes]
        print_answer(RecipesAnswer(items=items), output)
    for error in loaded.errors:
        _tell(error)
    if loaded.errors:
        raise typer.Exit(Exit.UNUSABLE)


@_app.command(
    "show",
    epilog=closing("recipes show", "rekindle recipes show my.toml -o yaml | kubectl apply -f -"),
    context_settings=HELP_NAMES,
)
def _show(
    name: Name,
    output: Annotated[
        Shown,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="How to print the recipe: table (default), wide, json, yaml, toml or name.",
            show_default=False,
        ),
    ] = Shown.TABLE,
    json: Json = False,
) -> None:
    """Check a recipe, and describe it in plain words. The output as JSON or YAML is an object for kubectl
    apply. The output as TOML is a file from which you can start your own recipe."""
    output = Shown.JSON if json else output
    recipe = _recipe(name)
    match output:
        case Shown.TABLE | Shown.WIDE:
            print_story(story(recipe))
        case Shown.TOML:
            print(_toml(name), end="")
        case Shown.NAME:
            print(recipe.name)
        case Shown.JSON | Shown.YAML:
            print_data(to_object(recipe), Output(output.value))


@_app.command(
    "test",
    epilog=closing("recipes test", "rekindle recipes test my.toml --log rank0.log --env A=b"),
    context_settings=HELP_NAMES,
)
def _test(
    name: Name,
    log: Annotated[
        Texts | None, typer.Option(metavar="FILE", help="A file with a log; - is standard input.")
    ] = None,
    exit_code: Annotated[
        list[int] | None, typer.Option(metavar="CODE", min=0, max=255, help="Exit code of the container.")
    ] = None,
    request: Annotated[
        Texts | None, typer.Option(metavar="RESOURCE=COUNT", help="A resource request of the container.")
    ] = None,
    env: Annotated[
        Texts | None, typer.Option(metavar="NAME=VALUE", help="A variable in the env of the template.")
    ] = None,
    fact: Annotated[
        Texts | None,
        typer.Option(metavar="NAME=VALUE", help="A fact, such as cuda.driver=12.4 or gpu.memory.free=16GiB."),
    ] = None,
    label: Annotated[Texts | None, typer.Option(metavar="NAME=VALUE", help="A label of the node.")] = None,
    fault: Annotated[Texts | None, typer.Option(metavar="CLASS", help="The fault class.")] = None,
    signal: Annotated[
        Texts | None, typer.Option(metavar="CODE", help="The code of a finding, such as xid-31.")
    ] = None,
    framework: Annotated[
        str, typer.Option(metavar="NAME", help="The framework of the job, such as paddle.")
    ] = "",
    output: Format = Output.TABLE,
    json: Json = False,
) -> None:
    """Try one recipe on a log, and on other facts of a failure. You can repeat most options."""
    output = Output.JSON if json else output
    recipe = _recipe(name)
    try:
        known = evidence(
            templates=templates_of(recipe),
            logs=log or [],
            exit_codes=exit_code or [],
            requests=request or [],
            env=env or [],
            facts=fact or [],
            labels=label or [],
            faults=fault or [],
            signals=signal or [],
            framework=framework,
        )
    except InputError as error:
        raise _failed(str(error)) from error
    if not log and templates_of(recipe):
        print(
            "rekindle: no log was given, and the recipe looks for lines of a log: add --log FILE",
            file=sys.stderr,
        )
    answer = matched(recipe, known)
    if output.for_people:
        print_story(story_of_answer(answer))
    else:
        print_answer(_plain(answer), output)
    if isinstance(answer, NotMatched):
        raise typer.Exit(Exit.BAD)


def _recipe(name: str) -> Recipe:
    recipes = built_in()
    if name in recipes:
        return recipes[name]
    if not (name.endswith((".toml", ".yaml", ".yml")) or "/" in name or Path(name).exists()):
        near = difflib.get_close_matches(name, recipes, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise _failed(f"no recipe {name!r}: {hint}expected a file or one of {', '.join(recipes)}")
    try:
        return read(Path(name))
    except RecipeError as error:
        _tell(error)
        raise typer.Exit(Exit.UNUSABLE) from error


def _toml(name: str) -> str:
    if name in built_in():
        return built_in_text(name)
    path = Path(name)
    if is_yaml(path):
        raise _failed(f"-o toml: value {name!r}: expected a built-in recipe or a TOML file")
    return path.read_text(encoding="utf-8")


def _table(recipes: list[Recipe], *, wide: bool) -> Table:
    rows = [(one.name, one.title, _does(one), *((one.source,) if wide else ())) for one in recipes]
    return Table("", ("NAME", "TITLE", "CHANGES", *(("SOURCE",) if wide else ())), tuple(rows))


def _does(recipe: Recipe) -> str:
    if recipe.disabled:
        return "nothing: switched off"
    change = recipe.change
    parts = {
        "environment": bool(change.env),
        "placement": change.placement is not None,
        "hold": change.hold is not Hold.NEVER,
        "advice": bool(change.advise),
    }
    return ", ".join(part for part, does in parts.items() if does)


def _plain(answer: Matched | NotMatched) -> TestAnswer:
    """Returns the answer for programs. It has the same fields whether the recipe matches or not."""
    matches = isinstance(answer, Matched)
    captured = answer.captured if isinstance(answer, Matched) else {}
    return TestAnswer(
        recipe=answer.recipe.name,
        matches=matches,
        hits=list(answer.hits),
        missing=[] if isinstance(answer, Matched) else [list(why) for why in answer.why],
        captured=captured,
        explicit_env=answer.explicit_env if isinstance(answer, Matched) else {},
        change=list(change_of(answer.recipe, captured)) if matches else [],
        verify=[line.text for line in verified(answer.recipe)] if matches else [],
    )


# --- printing -----------------------------------------------------------------------------------------------


def _failed(text: str) -> typer.Exit:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
    return typer.Exit(Exit.UNUSABLE)


def _tell(error: RecipeError) -> None:
    for line in error.lines:
        print(f"rekindle: {printable(line)}", file=sys.stderr)
