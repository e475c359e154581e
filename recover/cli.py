"""`rekindle status` and `rekindle why`: reads the API objects (lookup.py), tells them (stories/), prints.

Exit status: 0 answered, 1 the cluster cannot be read, 2 wrong usage, 3 no such job or node, or several.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from detectors.kubeapi import Credentials, KubeApi
from detectors.settings import SettingsError
from recover.kube.auth import load_credentials
from recover.kube.rest import RestCluster
from recover.lookup import CannotTell, NotFound, Snapshot, find, read
from recover.stories.job import why_job
from recover.stories.node import why_node
from recover.stories.overview import Overview, Table, overview
from recover.stories.words import Command, Line, Story, Tone, printable

__all__ = [
    "CaFile",
    "Context",
    "Format",
    "Kubeconfig",
    "Namespace",
    "Output",
    "Server",
    "TokenFile",
    "print_story",
    "status",
    "why",
]

EXIT_UNREADABLE = 1
EXIT_NOT_FOUND = 3
_ROWS_MAX = 50
_PIPED_COLUMNS = 160
"""Without a terminal there is no width to ask for; tables stay readable in a file of this width."""

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.WAITING: "yellow",
    Tone.DETAIL: "dim",
}
_EPILOG = "Exit status: 0 answered, 1 the cluster cannot be read, 2 wrong usage"


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Only jobs of this namespace.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the answer.")]
Kubeconfig = Annotated[str, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")]
Context = Annotated[str, typer.Option(help="A context of the kubeconfig.")]
Server = Annotated[str, typer.Option(metavar="URL", help="An API server, instead of a kubeconfig.")]
TokenFile = Annotated[str, typer.Option(metavar="FILE", help="The token for --server.")]
CaFile = Annotated[
    str, typer.Option(metavar="FILE", help="The certificate authority of --server (default: the system's).")
]


def status(args: list[str]) -> int:
    """The command's exit status."""
    return _run(_status, args, "rekindle status", _EPILOG)


def why(args: list[str]) -> int:
    """The command's exit status."""
    return _run(_why, args, "rekindle why", f"{_EPILOG}, 3 no such job or node, or several")


def _run(command: Callable[..., None], args: list[str], name: str, epilog: str) -> int:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=epilog)(command)
    try:
        app(args, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _status(
    namespace: Namespace = "",
    output: Format = Output.TABLE,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
) -> None:
    """Shows what is wrong, what is being done, what was refused, and where Rekindle is blind."""
    snapshot = _read(
        namespace,
        load_credentials(
            kubeconfig=kubeconfig, context=context, server=server, token_file=token_file, ca_file=ca_file
        ),
        jobs=False,
    )
    shown = overview(
        snapshot.nodes,
        snapshot.health,
        snapshot.incidents,
        snapshot.recoveries,
        datetime.now(UTC),
        hidden=snapshot.hidden,
    )
    if output is Output.JSON:
        _print_json(shown)
    else:
        _print_overview(shown)


def _why(
    subject: Annotated[
        str, typer.Argument(metavar="JOB|NODE", help="NAME, NAMESPACE/NAME, KIND/NAME or node/NAME.")
    ],
    namespace: Namespace = "",
    output: Format = Output.TABLE,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
) -> None:
    """Tells why a job or a node is as it is: what was seen, decided, refused and done, and what next."""
    snapshot = _read(
        namespace,
        load_credentials(
            kubeconfig=kubeconfig, context=context, server=server, token_file=token_file, ca_file=ca_file
        ),
        jobs=True,
    )
    try:
        found = find(subject, snapshot, namespace)
    except NotFound as error:
        raise _failed(error, EXIT_NOT_FOUND) from error
    now = datetime.now(UTC)
    if isinstance(found, str):
        story = why_node(
            found, snapshot.nodes.get(found), snapshot.health.get(found), snapshot.incidents, now
        )
    else:
        story = why_job(found, snapshot.recoveries, snapshot.incidents, now)
    if output is Output.JSON:
        _print_json(story)
    else:
        print_story(story)


def _read(namespace: str, found: Awaitable[Credentials], *, jobs: bool) -> Snapshot:
    """The objects; notes on what is missing go to standard error, so that -o json stays clean."""

    async def connected() -> Snapshot:
        async with KubeApi(await found) as api:
            return await read(RestCluster(api), namespace=namespace, jobs=jobs)

    try:
        snapshot = asyncio.run(connected())
    except (CannotTell, SettingsError) as error:
        raise _failed(error, EXIT_UNREADABLE) from error
    for note in snapshot.notes:
        print(f"rekindle: {note}", file=sys.stderr)
    return snapshot


def _failed(error: Exception, code: int) -> typer.Exit:
    print(f"rekindle: {error}", file=sys.stderr)
    return typer.Exit(code)


# --- printing ---------------------------------------------------------------------------------------------


def _print_json(answer: Story | Overview) -> None:
    print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def _console() -> Console:
    """Plain: no markup, since the text comes from objects that others wrote."""
    console = Console(markup=False, highlight=False, emoji=False)
    return (
        console
        if console.is_terminal
        else Console(markup=False, highlight=False, emoji=False, width=_PIPED_COLUMNS)
    )


def print_story(story: Story) -> None:
    console = _console()
    console.print(Text(story.subject, style="bold"))
    console.print(_text(story.verdict), soft_wrap=True)
    for section in story.sections:
        console.print()
        console.print(Text(section.title, style="bold"), soft_wrap=True)
        for line in section.lines:
            indent = "      " if line.tone is Tone.DETAIL else "  - "
            console.print(Text(indent) + _text(line), soft_wrap=True)
    _print_commands(console, story.commands)


def _print_overview(shown: Overview) -> None:
    console = _console()
    console.print(_text(shown.verdict), soft_wrap=True)
    for table in shown.tables:
        console.print()
        _print_table(console, table)
    _print_commands(console, shown.commands)


def _print_table(console: Console, table: Table) -> None:
    console.print(Text(table.title, style="bold"))
    drawn = RichTable(box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        drawn.add_column(column, overflow="fold")
    for row in table.rows[:_ROWS_MAX]:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(drawn)
    if len(table.rows) > _ROWS_MAX:
        console.print(f"... and {len(table.rows) - _ROWS_MAX} more: see -o json")


def _print_commands(console: Console, commands: tuple[Command, ...]) -> None:
    console.print()
    console.print(Text("Useful next", style="bold"))
    width = max((len(command.run) for command in commands), default=0)
    for command in commands:
        console.print(
            Text(f"  {command.run:<{width}}", style="cyan") + Text(f"   {command.why}", style="dim"),
            soft_wrap=True,
        )


def _text(line: Line) -> Text:
    return Text(printable(line.text), style=_STYLES[line.tone])
