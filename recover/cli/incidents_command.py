"""`rekindle incidents`: lists the Incidents, open ones first. The command changes nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from msgspec import Meta

from detectors.client.credentials import Credentials
from detectors.text.answers import Answer, Time
from detectors.wire.contract import GROUP
from recover.api import Incident, IncidentPhase
from recover.cli.access import Access, with_access
from recover.cli.asking import ask_cluster, note_missing
from recover.cli.options import Format, Json, run
from recover.cli.output import Output, print_answer
from recover.cli.plain_console import plain_console
from recover.cli.telling import print_table
from recover.k8s.kinds import INCIDENTS
from recover.kube.cluster import Cluster
from recover.snapshot.read import CannotTell, Snapshot, WhichJobs, read
from recover.stories.facts import decisions_of, incident_record
from recover.stories.overview_tables import Table
from recover.stories.records import DecisionRecord, IncidentRecord
from recover.stories.words import ago

__all__ = ["IncidentsAnswer", "incidents"]

_WATCH_S = 5.0


class IncidentsAnswer(Answer, frozen=True, kw_only=True, tag="Incidents"):
    """The answer of `rekindle incidents`."""

    at: Time
    incidents: Annotated[
        list[IncidentRecord],
        Meta(description="open Incidents first, then closed Incidents, each newest first"),
    ]
    decisions: Annotated[list[DecisionRecord], Meta(description="all actions of the listed Incidents")]

    def names(self) -> tuple[str, ...]:
        return tuple(f"incident.{GROUP}/{one.name}" for one in self.incidents)


def incidents(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_incidents), args, "incidents", "rekindle incidents --open --node gpu-17")


def _incidents(
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Only Incidents about this node.")] = "",
    open_: Annotated[bool, typer.Option("--open", help="Only open Incidents.")] = False,
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
    """List the Incidents with their faults, their culprits (nodes or jobs) and the actions of Rekindle.
    `rekindle why JOB` and `rekindle why node/NODE` explain an Incident."""
    output = Output.JSON if json else output

    async def looked(cluster: Cluster, _: Credentials) -> tuple[Snapshot, IncidentsAnswer]:
        snapshot = await read(cluster, jobs=WhichJobs.NONE)
        if INCIDENTS.plural in snapshot.hidden:
            raise CannotTell("you have no permission to list Incidents in this cluster")
        return snapshot, _answer(snapshot.incidents, node, datetime.now(UTC), only_open=open_)

    async def watched(cluster: Cluster, credentials: Credentials) -> None:
        before: IncidentsAnswer | None = None
        while True:
            _, answer = await looked(cluster, credentials)
            if before is None or msgspec.structs.replace(answer, at=before.at) != before:
                if before is not None and output.for_people:
                    print()
                _print(answer, output, watch=True)
                before = answer
            await asyncio.sleep(_WATCH_S)

    if watch:
        ask_cluster(watched, access)
        return
    snapshot, answer = ask_cluster(looked, access)
    note_missing(snapshot)
    _print(answer, output)


def _answer(
    found: Iterable[Incident], node: str, now: datetime, *, only_open: bool = False
) -> IncidentsAnswer:
    shown = [
        one for one in found if (not node or node in _nodes(one)) and not (only_open and not _is_open(one))
    ]
    shown.sort(key=lambda one: (_is_open(one), one.spec.detected_at), reverse=True)
    return IncidentsAnswer(
        at=now,
        incidents=[incident_record(one) for one in shown],
        decisions=[record for one in shown for record in decisions_of(one.metadata.name, one.status.actions)],
    )


def _is_open(incident: Incident) -> bool:
    return incident.status.phase is IncidentPhase.OPEN


def _nodes(incident: Incident) -> Collection[str]:
    return {incident.spec.node, incident.status.blamed_node, *incident.status.members}


def _print(answer: IncidentsAnswer, output: Output, *, watch: bool = False) -> None:
    if not output.for_people:
        print_answer(answer, output)
    else:
        if watch:
            print(f"{answer.at.astimezone():%H:%M:%S}")
        if not answer.incidents:
            print("No incidents.")
        else:
            print_table(plain_console(), _table(answer, wide=output is Output.WIDE))
    sys.stdout.flush()


def _table(answer: IncidentsAnswer, *, wide: bool) -> Table:
    columns = ("INCIDENT", "PHASE", "FAULT", "ABOUT", "SINCE", "DONE", "WHAT")
    rows = tuple(_row(answer, one, wide) for one in answer.incidents)
    return Table("", (*columns, "CULPRIT", "NOT DONE") if wide else columns, rows)


def _row(answer: IncidentsAnswer, one: IncidentRecord, wide: bool) -> tuple[str, ...]:
    mine = [record for record in answer.decisions if record.incident == one.name]
    about = one.node or (f"{one.job.namespace}/{one.job.name}" if one.job is not None else "")
    done = ", ".join(f"{r.action} {r.target}" for r in mine if r.outcome == "done")
    row = (one.name, one.phase.value, one.fault.value, about, ago(one.detected_at, answer.at), done)
    more = (one.blamed_node or one.blame.value, ", ".join(_not_done(mine))) if wide else ()
    return (*row, one.summary, *more)


def _not_done(records: Iterable[DecisionRecord]) -> Iterator[str]:
    for record in records:
        if record.outcome != "done":
            yield f"{record.action} {record.target}: {record.reason}"
