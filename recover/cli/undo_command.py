"""`rekindle undo INCIDENT`: undoes what Rekindle did for one Incident. Without `--yes` the command only makes
a dry run, which the API server checks."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated

import typer

from recover.api import Incident
from recover.cli.access import Access, with_access
from recover.cli.asking import RefusedError
from recover.cli.options import run
from recover.cli.undo_of_incident import TakenBack, taken_back
from recover.cli.writer import DryRun, Writer, changed
from recover.k8s.kinds import INCIDENTS, NODES, RECOVERIES
from recover.policy.commands import undo as undo_words
from recover.snapshot.find import NotFound
from recover.snapshot.read import CannotTell, Snapshot, WhichJobs, read
from recover.stories.words import some

__all__ = ["undo"]

_NEEDED = (INCIDENTS, NODES, RECOVERIES)


def undo(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_undo), args, "undo", "rekindle undo gpu-17-device-lost-4bb47e80")


def _undo(
    incident: Annotated[
        str,
        typer.Argument(
            metavar="INCIDENT", help="The name of the Incident, as `rekindle incidents` lists it."
        ),
    ],
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Make the changes. Without this option, the command does the same as with --dry-run.",
        ),
    ] = False,
    dry_run: DryRun = False,
    *,
    access: Access,
) -> None:
    """Undo only what Rekindle did for one Incident: end the quarantine of its node, and the use of a spare in
    place of the node. Rekindle then acts on the same fault only if the fault occurs again or continues.
    While a Recovery or a repair of the Incident is under way, or another open
    Incident names the same node as the culprit, the command changes nothing."""
    name = incident.rpartition("/")[2]
    is_rehearsal = dry_run or not yes

    async def work(writer: Writer) -> None:
        snapshot = await read(writer.cluster, jobs=WhichJobs.NONE)
        for resource in _NEEDED:
            if resource.plural in snapshot.hidden:
                raise CannotTell(
                    f"you have no permission to list {resource.plural} of the cluster, so nothing is changed"
                )
        found = _found(name, snapshot)
        plan = taken_back(
            found,
            snapshot.nodes,
            snapshot.health,
            snapshot.incidents,
            snapshot.recoveries,
            datetime.now(UTC),
        )
        if plan.obstacles:
            raise RefusedError(f"nothing is changed. {' '.join(plan.obstacles)}")
        await _write(writer, plan)
        if not plan.undos:
            print(f"Nothing that Rekindle did for {name} is left to undo.")
        elif is_rehearsal:
            print(f"Nothing was changed. `{undo_words(name)} --yes` makes these changes.")

    changed(work, access, dry_run=is_rehearsal)


def _found(name: str, snapshot: Snapshot) -> Incident:
    by_name = {one.metadata.name: one for one in snapshot.incidents}
    if name in by_name:
        return by_name[name]
    near = get_close_matches(name, by_name, n=3)
    hint = f"did you mean {some(near, 3)}?" if near else "`rekindle incidents` lists them"
    raise NotFound(f"no Incident {name!r}: {hint}")


async def _write(writer: Writer, plan: TakenBack) -> None:
    for one in plan.undos:
        patch = one.patch
        metadata = {**patch.body.get("metadata", {}), "uid": patch.uid, "resourceVersion": patch.version}
        await writer.patch(patch.resource, patch.name, {**patch.body, "metadata": metadata})
        writer.say(one.words)
    for line in plan.stays:
        print(line)
