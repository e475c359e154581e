"""`rekindle status` and `rekindle why`: reads the API objects (recover.snapshot), tells them, prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError
from detectors.text.printing import one_line, printable
from recover.cli.options import CaFile, Context, Format, Kubeconfig, Namespace, Server, TokenFile, run
from recover.cli.output import Output, print_data
from recover.cli.plain_console import cell, plain_console
from recover.kube.auth import load_credentials
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster
from recover.model import AgentPod, Pod
from recover.snapshot.agents_seen import agents_seen, signals_seen
from recover.snapshot.find import NotFound, find, namespace_of
from recover.snapshot.read import CannotTell, Snapshot, pods_on, ranks_of, read
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.overview import Overview, Table, overview
from recover.stories.why_job import why_job
from recover.stories.why_node import why_node
from recover.stories.words import Command, Line, Story, Tone

__all__ = ["print_story", "status", "why"]

T = TypeVar("T")

_ROWS_MAX = 50

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.WAITING: "yellow",
    Tone.DETAIL: "dim",
}


def status(args: list[str]) -> int:
    """The command's exit status."""
    return run(_status, args, "status")


def why(args: list[str]) -> int:
    """The command's exit status."""
    return run(_why, args, "why", "rekindle why team/llm, or rekindle why node/gpu-17")


def _status(
    namespace: Namespace = "",
    output: Format = Output.TABLE,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
) -> None:
    """Show what is wrong, what is being done, what was refused, and where Rekindle is blind."""

    async def looked(cluster: Cluster) -> tuple[Snapshot, Mapping[str, AgentPod] | None]:
        own = await signals_seen(cluster)
        return await read(cluster, namespace=namespace, jobs=False, own=own), await agents_seen(cluster)

    snapshot, agents = _asked(
        looked,
        load_credentials(
            kubeconfig=kubeconfig, context=context, server=server, token_file=token_file, ca_file=ca_file
        ),
    )
    _note(snapshot)
    shown = overview(
        snapshot.nodes,
        snapshot.health,
        snapshot.incidents,
        snapshot.recoveries,
        datetime.now(UTC),
        hidden=snapshot.hidden,
        agents=agents,
    )
    if output is Output.TABLE:
        _print_overview(shown)
    else:
        print_data(shown, output)


def _why(
    subject: Annotated[
        str,
        typer.Argument(metavar="JOB|NODE", help="Asked for as NAME, NAMESPACE/NAME, KIND/NAME or node/NAME."),
    ],
    namespace: Namespace = "",
    output: Format = Output.TABLE,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
) -> None:
    """Tell why a job or a node is as it is: what was seen, decided, refused and done, and what next."""

    async def looked(
        cluster: Cluster,
    ) -> tuple[Snapshot, Job | str, tuple[Pod, ...], Mapping[str, AgentPod] | None]:
        own = await signals_seen(cluster)
        snapshot = await read(cluster, namespace=namespace, instead=namespace_of(subject), own=own)
        found = find(subject, snapshot, namespace)
        if isinstance(found, str):
            there = await pods_on(cluster, found, snapshot.health.get(found))
            return snapshot, found, there, await agents_seen(cluster)
        return snapshot, found, await ranks_of(cluster, found.gang) if found.gang is not None else (), None

    snapshot, found, pods, agents = _asked(
        looked,
        load_credentials(
            kubeconfig=kubeconfig, context=context, server=server, token_file=token_file, ca_file=ca_file
        ),
    )
    _note(snapshot)
    now = datetime.now(UTC)
    if isinstance(found, str):
        story = why_node(
            found,
            snapshot.nodes.get(found),
            snapshot.health.get(found),
            snapshot.incidents,
            now,
            hidden=snapshot.hidden,
            agents=agents,
            pods=pods,
        )
    else:
        around = Around(
            nodes=snapshot.nodes, namespaces=snapshot.namespaces, pods=pods, hidden=snapshot.hidden
        )
        story = why_job(found, snapshot.recoveries, snapshot.incidents, now, around)
    if output is Output.TABLE:
        print_story(story)
    else:
        print_data(story, output)


def _asked(question: Callable[[Cluster], Awaitable[T]], found: Awaitable[Credentials]) -> T:
    """The answer of the API server; the command ends where there is none."""

    async def connected() -> T:
        async with KubeApi(await found) as api:
            return await question(RestCluster(api))

    try:
        return asyncio.run(connected())
    except (CannotTell, NotFound) as error:
        raise _failed(error, Exit.NO_ANSWER) from error
    except SettingsError as error:
        raise _failed(error, Exit.UNUSABLE) from error


def _note(snapshot: Snapshot) -> None:
    """What is missing goes to standard error, so that -o json stays clean."""
    for note in snapshot.notes:
        print(f"rekindle: {one_line(note)}", file=sys.stderr)


def _failed(error: Exception, code: Exit) -> typer.Exit:
    print(f"rekindle: {error}", file=sys.stderr)
    return typer.Exit(code)


# --- printing ---------------------------------------------------------------------------------------------


def print_story(story: Story) -> None:
    console = plain_console()
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
    console = plain_console()
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
        drawn.add_row(*map(cell, row))
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
