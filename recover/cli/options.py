"""Common parts of the commands that use typer: how they run, and how they print. access.py has the options
that choose the cluster.

The commands that must start without typer use detectors/commands/arguments.py and kube/arguments.py, with the
same words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from typer.main import get_command

from detectors.commands.arguments import plain_error
from detectors.commands.exit_status import Exit, closing
from recover.cli.output import JSON_HELP, OUTPUT_HELP, Output

__all__ = [
    "HELP_NAMES",
    "Format",
    "Json",
    "run",
    "run_app",
]

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

Format = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORM", help=OUTPUT_HELP, show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


def run(command: Callable[..., None], args: list[str], name: str, example: str = "") -> int:
    """Runs `rekindle NAME` and returns its exit status."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(epilog=closing(name, example), context_settings=HELP_NAMES)(command)
    return run_app(app, args, name)


def run_app(app: typer.Typer, args: list[str], name: str) -> int:
    """Runs an app, with or without subcommands, and returns its exit status."""
    command = get_command(app)
    _without_types(command)
    try:
        ended = command.main(args, prog_name=f"rekindle {name}", standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except typer.Abort:
        return Exit.INTERRUPTED
    except _TYPER_ERRORS as error:
        return _unusable(error)
    return ended if isinstance(ended, int) else 0


_TYPER_ERRORS: tuple[type[Any], ...] = tuple(
    one for one in typer.BadParameter.__mro__ if one.__name__ in ("UsageError", "ClickException")
)
"""Error classes of the library below typer, which typer does not export."""


def _unusable(error: Any) -> int:
    """Reports wrong usage in the same form as the commands without typer."""
    context = getattr(error, "ctx", None)
    if context is not None:
        print(context.get_usage(), file=sys.stderr)
        print(f"Try '{context.command_path} -h' for help.\n", file=sys.stderr)
    message = error.format_message()
    inner = getattr(getattr(context, "command", None), "commands", {})
    if inner and message.startswith("No such command"):
        message = f"{message.rstrip('.')}: expected one of {', '.join(inner)}"
    print(f"Error: {plain_error(message)}", file=sys.stderr)
    return Exit.UNUSABLE


def _without_types(command: Any) -> None:
    """Removes Python types from the help of arguments: the help of an argument says what to write."""
    for inner in getattr(command, "commands", {}).values():
        _without_types(inner)
    for param in command.params:
        if param.param_type_name == "argument":
            param.get_help_record = partial(_help_of, param.get_help_record)
            param.get_usage_pieces = partial(_usage_of, param.get_usage_pieces)


def _help_of(told: Callable[[Any], tuple[str, str] | None], context: Any) -> tuple[str, str] | None:
    record = told(context)
    return (re.sub(r" <.*>$", "", record[0]), record[1]) if record is not None else None


def _usage_of(told: Callable[[Any], list[str]], context: Any) -> list[str]:
    return [piece.replace("{", "").replace("}", "") for piece in told(context)]
