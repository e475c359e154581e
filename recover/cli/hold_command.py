"""`rekindle hold` and `rekindle release`: write and remove the annotations of a hold on one node or one job.

policy/consent.py reads the annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from detectors.wire.resource import Resource
from recover.api import Phase, Recovery
from recover.cli.access import Access, with_access
from recover.cli.options import run
from recover.cli.writer import DryRun, HoldFor, Reason, Writer, changed, checked_reason, duration_s
from recover.k8s.kinds import NODES
from recover.model import Gang, Node
from recover.policy.commands import UNHOLD, undo
from recover.policy.consent import HOLD, HOLD_REASON, HOLD_UNTIL, MANAGED, held
from recover.snapshot.find import find, namespace_of
from recover.snapshot.read import CannotTell, Snapshot, read
from recover.stories.job_state import Job
from recover.stories.recovery_words import has_stopped

__all__ = ["hold", "release"]

Subject = Annotated[
    str,
    typer.Argument(metavar="JOB|NODE", help="Named as NAME, NAMESPACE/NAME, KIND/NAME or node/NAME."),
]
Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", metavar="NAME", help="Only a job of this namespace."),
]
_MEANS = {
    True: "Rekindle does not cordon, taint or repair the node, and does not end its quarantine. Rekindle may "
    "restart jobs that run on the node.",
    False: "Rekindle does not stop the job. If the job is stopped, Rekindle does not start the job.",
}
"""Meaning of a hold, by whether the subject is a node."""


def hold(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_hold), args, "hold", 'rekindle hold node/gpu-17 --for 1d --reason "new cables"')


def release(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_release), args, "release")


def _hold(
    subject: Subject,
    reason: Reason = "",
    for_: HoldFor = "",
    namespace: Namespace = "",
    dry_run: DryRun = False,
    *,
    access: Access,
) -> None:
    """Put a hold on a node or a job: Rekindle does not change the node or the job until the hold ends.
    Despite the hold of a node, Rekindle may restart jobs that run there. Without --for, only `rekindle
    release` ends the hold. `rekindle why` shows the hold with its reason. A second call changes the reason
    and the end."""

    async def work(writer: Writer) -> None:
        text, for_s, now = checked_reason(reason), duration_s(for_), datetime.now(UTC).replace(microsecond=0)
        snapshot, found = await _found(writer, subject, namespace, "hold")
        until = now + timedelta(seconds=for_s) if for_s is not None else None
        notes = {
            HOLD: "true",
            HOLD_UNTIL: until.isoformat() if until is not None else None,
            HOLD_REASON: text or None,
        }
        await _annotate(writer, found, notes)
        end = f"{until:%Y-%m-%d %H:%M} UTC" if until is not None else f"`rekindle release {subject}`"
        writer.say(f"{_name(found)} is held until {end}{f': {text}' if text else ''}.")
        print(_MEANS[isinstance(found, Node)])
        for line in _under_way(snapshot, found):
            print(line)

    changed(work, access, dry_run=dry_run)


def _release(subject: Subject, namespace: Namespace = "", dry_run: DryRun = False, *, access: Access) -> None:
    """End the hold on a node or a job. The command undoes nothing else: a quarantined node stays in
    quarantine."""

    async def work(writer: Writer) -> None:
        snapshot, found = await _found(writer, subject, namespace, "release")
        if any(key in found.annotations for key in (HOLD, HOLD_UNTIL, HOLD_REASON)):
            await _annotate(writer, found, dict.fromkeys((HOLD, HOLD_UNTIL, HOLD_REASON)))
            writer.say(f"{_name(found)} has no hold any more.")
        else:
            writer.say(f"{_name(found)} has no hold.")
        for line in _still(snapshot, found):
            print(line)

    changed(work, access, dry_run=dry_run)


async def _found(writer: Writer, subject: str, namespace: str, command: str) -> tuple[Snapshot, Node | Gang]:
    """Returns the snapshot, and the node or job as it is now. Raises NotFound, CannotTell."""
    default = writer.default_namespace
    snapshot = await read(writer.cluster, namespace=namespace, instead=namespace_of(subject) or default)
    found = find(subject, snapshot, namespace, command, default)
    if isinstance(found, Job):
        if found.gang is None:
            raise CannotTell(f"{found.ref} is not changed. {found.absence.of(found.ref)}")
        return snapshot, found.gang
    node = snapshot.nodes.get(found)
    if node is None:
        is_hidden = NODES.plural in snapshot.hidden
        said = (
            "you have no permission to read Nodes"
            if is_hidden
            else "there is no Node of that name, only records of it"
        )
        raise CannotTell(f"node/{found} cannot be changed: {said}")
    return snapshot, node


async def _annotate(writer: Writer, found: Node | Gang, notes: Mapping[str, str | None]) -> None:
    resource, name, namespace, uid = _place(found)
    await writer.patch(resource, name, {"metadata": {"uid": uid, "annotations": notes}}, namespace)


def _place(found: Node | Gang) -> tuple[Resource, str, str, str]:
    if isinstance(found, Node):
        return NODES, found.name, "", found.uid
    return found.resource, found.ref.name, found.ref.namespace, found.ref.uid


def _name(found: Node | Gang) -> str:
    return f"Node {found.name}" if isinstance(found, Node) else str(found.ref)


def _under_way(snapshot: Snapshot, found: Node | Gang) -> list[str]:
    """Returns sentences about what the hold does to work that is under way."""
    if isinstance(found, Node):
        if found.quarantine is None:
            return []
        return [
            f"{found.name} stays in quarantine: until the hold ends, Rekindle neither repairs the node nor "
            "returns it to service."
        ]
    return [
        f"Recovery {one.metadata.name} is under way ({one.status.phase}). {_then(one)}"
        for one in snapshot.recoveries
        if one.active and found.ref.uid in (one.spec.gang.uid, one.gang_uid)
    ]


def _then(recovery: Recovery) -> str:
    if recovery.status.phase in (Phase.RESUMING, Phase.VERIFYING):
        return "The Recovery has started the job, and does not stop the job again until the hold ends."
    if has_stopped(recovery):
        return "WARNING: the Recovery has stopped the job, and the job stays stopped until the hold ends."
    return "The Recovery has not stopped the job so far, and does not stop the job until the hold ends."


def _still(snapshot: Snapshot, found: Node | Gang) -> list[str]:
    """Returns sentences about what else keeps Rekindle from acting on the subject, and about what ending the
    hold does not change."""
    told = []
    if isinstance(found, Node):
        if found.labels.get(MANAGED) == "false":
            told.append(
                f"The label {MANAGED}=false still keeps Rekindle from acting on the node: "
                f"`kubectl label node {found.name} {MANAGED}-`."
            )
        if found.quarantine is not None:
            told.append(
                f"The node is still quarantined: `{undo(found.quarantine.incident)}` ends the quarantine."
            )
        return told
    space = snapshot.namespaces.get(found.ref.namespace)
    if space is not None and held(space.annotations, datetime.now(UTC)) is not None:
        told.append(
            f"A hold on namespace {space.name} still applies to the job: "
            f"`kubectl annotate namespace {space.name} {UNHOLD}`."
        )
    return told
