"""`rekindle recipes`: lists known issues, checks a recipe file, and tries one on a log. Changes nothing."""

from __future__ import annotations

import difflib
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from detectors.commands.exit_status import Exit, closing
from detectors.text.printing import printable
from recover.api.recipe_spec import Hold, Recipe
from recover.cli.options import HELP_NAMES, Format, answered
from recover.cli.output import Output, print_data
from recover.cli.plain_console import cell, plain_console
from recover.recipes.convert import RecipeError
from recover.recipes.given import InputError, evidence
from recover.recipes.load import built_in, built_in_text, is_yaml, load, read
from recover.recipes.match import Matched, NotMatched, match, templates_of
from recover.recipes.objects import to_object
from recover.recipes.wording import changed
from recover.stories.known_issue import story, story_of_answer, verified
from recover.stories.words import Story, Tone

__all__ = ["run"]

_STYLES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.WAITING: "yellow", Tone.DETAIL: "dim", Tone.PLAIN: ""}


class Shown(StrEnum):
    TABLE = "table"
    JSON = "json"
    TOML = "toml"
    YAML = "yaml"


Name = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A built-in recipe's name, or a file: TOML, or an object in YAML or JSON."
    ),
]
Texts = list[str]

_app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=HELP_NAMES,
    help="Look at known issues: how each shows, what to change, how to see that it helped.",
)


def run(args: list[str]) -> int:
    """The command's exit status."""
    return answered(_app, args, "recipes")


@_app.command("list", epilog=closing("recipes list"), context_settings=HELP_NAMES)
def _list(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Your own: files, or folders of *.toml.")
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """List the built-in recipes and your own. One that cannot be used is told, the others are listed."""
    loaded = load(paths or [])
    recipes = [loaded.recipes[name] for name in sorted(loaded.recipes)]
    if output is not Output.TABLE:
        print_data(recipes, output)
    else:
        table = Table("name", "title", "does", box=None, pad_edge=False, header_style="dim")
        for recipe in recipes:
            table.add_row(cell(recipe.name), cell(recipe.title), _does(recipe))
        plain_console().print(table)
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
            help="How to print it: table (default), json, yaml or toml.",
            show_default=False,
        ),
    ] = Shown.TABLE,
) -> None:
    """Check a recipe, and tell it in plain words. As JSON or YAML it is an object for kubectl apply, as TOML
    a file, of a built-in one to start your own from."""
    recipe = _recipe(name)
    if output is Shown.TABLE:
        _print_story(story(recipe))
    elif output is Shown.TOML:
        print(_toml(name), end="")
    else:
        print_data(to_object(recipe), output)


@_app.command(
    "test",
    epilog=closing("recipes test", "rekindle recipes test my.toml --log rank0.log --env A=b"),
    context_settings=HELP_NAMES,
)
def _test(
    name: Name,
    log: Annotated[Texts | None, typer.Option(metavar="FILE", help="A log; - is standard input.")] = None,
    exit_code: Annotated[
        list[int] | None, typer.Option(metavar="CODE", min=0, max=255, help="How a container ended.")
    ] = None,
    request: Annotated[
        Texts | None, typer.Option(metavar="RESOURCE=COUNT", help="What the container requests.")
    ] = None,
    env: Annotated[
        Texts | None, typer.Option(metavar="NAME=VALUE", help="A variable in the template's own env.")
    ] = None,
    fact: Annotated[
        Texts | None, typer.Option(metavar="NAME=VALUE", help="As cuda.driver=12.4; gpu.memory.free=16GiB.")
    ] = None,
    label: Annotated[Texts | None, typer.Option(metavar="NAME=VALUE", help="A label of the node.")] = None,
    fault: Annotated[Texts | None, typer.Option(metavar="CLASS", help="A fault that was found.")] = None,
    signal: Annotated[Texts | None, typer.Option(metavar="CODE", help="A finding's code, as xid-31.")] = None,
    framework: Annotated[str, typer.Option(metavar="NAME", help="What the job runs, as paddle.")] = "",
    output: Format = Output.TABLE,
) -> None:
    """Try one recipe on a log and on what else you know. Most options may be repeated."""
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
    answer = match(recipe, known)
    if output is Output.TABLE:
        _print_story(story_of_answer(answer))
    else:
        print_data(_plain(answer), output)
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


def _plain(answer: Matched | NotMatched) -> dict[str, Any]:
    """The same fields whether it matches or not."""
    matched = isinstance(answer, Matched)
    captured = answer.captured if isinstance(answer, Matched) else {}
    return {
        "recipe": answer.recipe.name,
        "matches": matched,
        "hits": answer.hits,
        "missing": () if isinstance(answer, Matched) else answer.why,
        "captured": captured,
        "explicitEnv": answer.explicit_env if isinstance(answer, Matched) else {},
        "change": changed(answer.recipe.change, captured) if matched else (),
        "verify": verified(answer.recipe) if matched else (),
    }


# --- printing -----------------------------------------------------------------------------------------------


def _failed(text: str) -> typer.Exit:
    print(f"rekindle recipes: {printable(text)}", file=sys.stderr)
    return typer.Exit(Exit.UNUSABLE)


def _tell(error: RecipeError) -> None:
    for line in error.lines:
        print(f"rekindle recipes: {printable(line)}", file=sys.stderr)


def _print_story(told: Story) -> None:
    console = plain_console()
    console.print(Text(f"{told.subject} ", style="bold") + _text(told.verdict.text, told.verdict.tone))
    for section in told.sections:
        console.print()
        console.print(Text(section.title, style="bold"))
        for line in section.lines:
            indent = "      " if line.tone is Tone.DETAIL else "  - "
            console.print(Text(indent) + _text(line.text, line.tone), soft_wrap=True)


def _text(text: str, tone: Tone) -> Text:
    return Text(printable(text), style=_STYLES[tone])
