"""What the commands that use typer have in common: how they run, and the options that say which cluster.

Those that must start without typer have detectors/commands/arguments.py and kube/arguments.py, and the same
words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from detectors.commands.exit_status import closing
from recover.cli.output import JSON_HELP, OUTPUT_HELP, Output
from recover.kube.arguments import HELP

__all__ = [
    "HELP_NAMES",
    "CaFile",
    "Context",
    "Format",
    "Json",
    "Kubeconfig",
    "Namespace",
    "Server",
    "TokenFile",
    "answered",
    "run",
]

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Only jobs of this namespace.")
]
Format = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORM", help=OUTPUT_HELP, show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
Kubeconfig = Annotated[str, typer.Option(metavar="FILE", help=HELP["kubeconfig"])]
Context = Annotated[str, typer.Option(metavar="NAME", help=HELP["context"])]
Server = Annotated[str, typer.Option(metavar="URL", help=HELP["server"])]
TokenFile = Annotated[str, typer.Option(metavar="FILE", help=HELP["token_file"])]
CaFile = Annotated[str, typer.Option(metavar="FILE", help=HELP["ca_file"])]


def run(command: Callable[..., None], args: list[str], name: str, example: str = "") -> int:
    """The exit status of `rekindle NAME`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(epilog=closing(name, example), context_settings=HELP_NAMES)(command)
    return answered(app, args, name)


def answered(app: typer.Typer, args: list[str], name: str) -> int:
    """The same, of an app with commands of its own."""
    try:
        app(args, prog_name=f"rekindle {name}")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
