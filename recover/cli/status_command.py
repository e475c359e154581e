"""`rekindle status` and `rekindle why`: read the API objects (recover.snapshot), turn them into words, and
print the words."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from detectors.client.credentials import Credentials
from recover.cli.access import Access, AllNamespaces, Namespace, namespace_for, with_access
from recover.cli.asking import ask_cluster, note_missing
from recover.cli.options import Format, Json, run
from recover.cli.output import Output, print_answer
from recover.cli.plain_console import plain_console
from recover.cli.telling import STYLES, print_commands, print_line, print_story, print_table
from recover.kube.cluster import Cluster
from recover.snapshot.agents_seen import agents_seen, signals_seen
from recover.snapshot.find import find, namespace_of
from recover.snapshot.installation_seen import installation_seen, jobs_seen, pause_seen, release_seen
from recover.snapshot.read import Snapshot, WhichJobs, pods_on, ranks_of, read
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.overview import Overview, StatusFacts, overview, recent
from recover.stories.records import StatusAnswer
from recover.stories.why_job import job_answer, why_job
from recover.stories.why_node import node_answer, why_node

__all__ = ["status", "why"]

_WATCH_S = 5.0


def status(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_status), args, "status")


def why(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_why), args, "why", "rekindle why team/llm, or rekindle why node/gpu-17")


def _status(
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    output: Format = Output.TABLE,
    json: Json = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Read the cluster every 5 seconds, and print each change, until Ctrl-C."
        ),
    ] = False,
    *,
    access: Access,
) -> None:
    """Show the open faults, the actions of Rekindle, the actions that it refused, and the sources that it
    cannot read."""
    output = Output.JSON if json else output

    async def looked(cluster: Cluster, credentials: Credentials) -> tuple[Snapshot, Overview]:
        within = namespace_for(namespace, all_namespaces, credentials)
        own = await signals_seen(cluster)
        snapshot = await read(cluster, namespace=within, jobs=WhichJobs.LABELLED, own=own)
        now = datetime.now(UTC)
        jobs = await jobs_seen(cluster, recent(snapshot.recoveries, now))
        facts = StatusFacts(
            nodes=snapshot.nodes,
            health=snapshot.health,
            incidents=snapshot.incidents,
            recoveries=snapshot.recoveries,
            namespaces=tuple(snapshot.namespaces.values()),
            hidden=snapshot.hidden,
            agents=await agents_seen(cluster),
            installed=await installation_seen(cluster),
            jobs=msgspec.structs.replace(jobs, listed=tuple(snapshot.gangs)),
            namespace=within,
        )
        shown = overview(facts, now, wide=output is Output.WIDE)
        return snapshot, shown

    if not watch:
        snapshot, shown = ask_cluster(looked, access)
        note_missing(snapshot)
        _print_status(shown, output)
        return

    async def watched(cluster: Cluster, credentials: Credentials) -> None:
        before: StatusAnswer | None = None
        while True:
            snapshot, shown = await looked(cluster, credentials)
            still = msgspec.structs.replace(shown.answer, at=before.at) if before is not None else None
            if still is None or still != before:
                if before is None:
                    note_missing(snapshot)
                elif output.for_people:
                    print()
                if output.for_people:
                    print(f"{shown.answer.at.astimezone():%H:%M:%S}")
                _print_status(shown, output)
                sys.stdout.flush()
                before = shown.answer
            await asyncio.sleep(_WATCH_S)

    ask_cluster(watched, access)


def _print_status(shown: Overview, output: Output) -> None:
    if output.for_people:
        _print_overview(shown)
    else:
        print_answer(shown.answer, output)


def _why(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="JOB|NODE", help="The job or node, as NAME, NAMESPACE/NAME, KIND/NAME or node/NAME."
        ),
    ],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Only a job of this namespace.")
    ] = "",
    output: Format = Output.TABLE,
    json: Json = False,
    *,
    access: Access,
) -> None:
    """Explain the state of a job or a node: the evidence, the decisions, the actions that Rekindle took or
    refused, and the next steps. With -o wide, the answer shows all Incidents and Recoveries in full,
    and not only the newest three."""
    output = Output.JSON if json else output

    async def looked(cluster: Cluster, credentials: Credentials) -> tuple[Snapshot, Job | str, Around]:
        own, default = await signals_seen(cluster), credentials.namespace
        snapshot = await read(cluster, namespace=namespace, instead=namespace_of(subject) or default, own=own)
        found = find(subject, snapshot, namespace, default_namespace=default)
        release = await release_seen(cluster)
        around = Around(
            nodes=snapshot.nodes,
            namespaces=snapshot.namespaces,
            hidden=snapshot.hidden,
            pause=await pause_seen(cluster, release, datetime.now(UTC)),
            release=release,
        )
        if isinstance(found, str):
            pods = await pods_on(cluster, found, snapshot.health.get(found))
            agents = await agents_seen(cluster)
            return snapshot, found, msgspec.structs.replace(around, pods=pods, agents=agents)
        ranks = await ranks_of(cluster, found.gang) if found.gang is not None else ()
        return snapshot, found, msgspec.structs.replace(around, pods=ranks)

    snapshot, found, around = ask_cluster(looked, access)
    note_missing(snapshot)
    now, wide = datetime.now(UTC), output is Output.WIDE
    if isinstance(found, str):
        node, report = snapshot.nodes.get(found), snapshot.health.get(found)
        of_node = (found, node, report, snapshot.incidents, now, around)
        if output.for_people:
            print_story(why_node(*of_node, wide=wide))
        else:
            print_answer(node_answer(*of_node), output)
        return
    of_job = (found, snapshot.recoveries, snapshot.incidents, now, around)
    if output.for_people:
        print_story(why_job(*of_job, wide=wide))
    else:
        print_answer(job_answer(*of_job), output)


def _print_overview(shown: Overview) -> None:
    console = plain_console()
    for line in shown.head:
        print_line(console, line.text, style=STYLES[line.tone])
    print_line(console, shown.verdict.text, style=STYLES[shown.verdict.tone])
    for table in shown.tables:
        console.print()
        print_table(console, table)
    print_commands(console, shown.commands)
