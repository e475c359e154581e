"""`rekindle pause` and `rekindle resume`: write and delete ConfigMap `rekindle-pause`, which the controller
watches.

docs/pausing.md says what a pause means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from detectors.client.kubeapi import ApiError
from detectors.text.printing import one_line
from recover.api import Act, Incident, IncidentPhase, Recovery
from recover.api.reasons import Reason as Why
from recover.cli.access import Access, with_access
from recover.cli.asking import RefusedError, note
from recover.cli.options import run
from recover.cli.writer import (
    DryRun,
    PauseFor,
    Reason,
    Writer,
    changed,
    checked_reason,
    duration_s,
)
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, NODES, RECOVERIES
from recover.kube.cluster import Cluster, every
from recover.model import decode
from recover.model.pause import KEYS, PAUSE, Pause, read_pause
from recover.policy.commands import cordon, why
from recover.policy.settings import Settings
from recover.runtime.mode_keeper import STATE, kept_modes
from recover.snapshot.agents_seen import release_namespace
from recover.stories.recovery_words import has_stopped
from recover.triage.held_back import refusals

__all__ = ["pause", "resume"]

SEEN_WITHIN_S = 5.0
"""Time for which the command waits until the controller has recorded the pause or its end."""
_LOOK_S = 0.2
_TOLD_MAX = 10
_MEANS = (
    "During the pause Rekindle stops no job, cordons and taints no node, begins no step of a repair, and "
    "uses a spare only for a job that it has already stopped. It says what it would do."
)
_AFTERWARDS = (
    "Rekindle restarts jobs that are down, and acts on a fault of a node that occurs again or continues."
)

Where = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="The namespace of Rekindle's Helm release (default: the namespace in which the command finds "
        "the ConfigMap rekindle-settings, or else rekindle-system).",
        show_default=False,
    ),
]


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


def pause(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_pause), args, "pause", 'rekindle pause --for 2h --reason "new switch firmware"')


def resume(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_resume), args, "resume")


def _pause(
    reason: Reason = "",
    for_: PauseFor = "",
    namespace: Where = "",
    dry_run: DryRun = False,
    *,
    access: Access,
) -> None:
    """Pause Rekindle for the whole cluster: Rekindle begins nothing new until the pause ends. `rekindle
    resume` ends the pause, and `--for` sets its longest duration. If Rekindle stopped a job before the pause,
    Rekindle still starts this job again. If Rekindle is paused already, the command sets the reason and the
    duration as you give them now, and removes those that you do not give."""

    async def work(writer: Writer) -> None:
        text, for_s, now = checked_reason(reason), duration_s(for_), datetime.now(UTC).replace(microsecond=0)
        space = await _release(writer.cluster, namespace)
        before, data, version = await _there(writer.cluster, space)
        lasts = before is not None and before.lasts(now)
        asked = {
            "since": (before.since if before is not None and lasts else now).isoformat(),
            "by": await writer.user() or None,
            "reason": text or None,
            "until": (now + timedelta(seconds=for_s)).isoformat() if for_s is not None else None,
        }
        if before is None:
            body = _body({key: value for key, value in asked.items() if value is not None})
            await writer.create(CONFIGMAPS, body, space)
        else:
            unknown = dict.fromkeys(data.keys() - set(KEYS))
            meta = {"uid": before.uid, "resourceVersion": version}
            await writer.patch(CONFIGMAPS, PAUSE, {"metadata": meta, "data": unknown | asked}, space)
        now_there = read_pause(msgspec.json.encode(_body({k: v for k, v in asked.items() if v is not None})))
        writer.say(f"{now_there.words()}.")
        print(f"{_MEANS} `rekindle resume` ends the pause.")
        for line in await _under_way(writer.cluster):
            print(line)
        if not writer.dry_run:
            await _wait_until_seen(writer.cluster, space, paused=True)

    changed(work, access, dry_run=dry_run)


def _resume(namespace: Where = "", dry_run: DryRun = False, *, access: Access) -> None:
    """End a pause. Rekindle then restarts jobs that are down, and acts on each fault of a node that occurs
    again or continues. Rekindle does not act on faults that occurred only during the pause: the
    command lists these faults."""

    async def work(writer: Writer) -> None:
        space = await _release(writer.cluster, namespace)
        before, _, _ = await _there(writer.cluster, space)
        if before is None:
            writer.say(f"Rekindle is not paused: there is no ConfigMap {PAUSE} in namespace {space}.")
            return
        told = await _not_done(writer.cluster)
        await writer.delete(CONFIGMAPS, PAUSE, space, before.uid)
        if not before.lasts(datetime.now(UTC)):
            writer.say(f"Nothing was left to resume: the pause ended by itself at {before.until}.")
            return
        writer.say(f"Rekindle is resumed. {_AFTERWARDS}")
        if told:
            print(
                "Rekindle saw these faults before the pause ended, and does not act on them unless they "
                "occur again or continue. If one of these nodes is broken, cordon the node:"
            )
        for line in told[:_TOLD_MAX]:
            print(f"  - {line}")
        if len(told) > _TOLD_MAX:
            print(f"  - and {len(told) - _TOLD_MAX} more: `rekindle status`")
        if not writer.dry_run:
            await _wait_until_seen(writer.cluster, space, paused=False)

    changed(work, access, dry_run=dry_run)


async def _release(cluster: Cluster, asked: str) -> str:
    return asked or await release_namespace(cluster) or Settings().namespace


async def _there(cluster: Cluster, namespace: str) -> tuple[Pause | None, dict[str, str], str]:
    """Returns the pause in the cluster, or None if there is none, with its data and its version. Raises
    RefusedError."""
    try:
        raw = await cluster.get(CONFIGMAPS, PAUSE, namespace)
    except ApiError as error:
        if error.not_found:
            return None, {}, ""
        raise RefusedError(f"ConfigMap {namespace}/{PAUSE} cannot be read: {error}") from error
    found = msgspec.json.decode(raw)
    return read_pause(raw), found.get("data") or {}, found["metadata"]["resourceVersion"]


def _body(data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PAUSE}, "data": data}


async def _under_way(cluster: Cluster) -> list[str]:
    """Returns one line for each Recovery that continues. Without permission to read Recoveries, the one line
    says so."""
    try:
        found = [msgspec.json.decode(raw, type=Recovery) for raw in await every(cluster, RECOVERIES)]
    except (ApiError, msgspec.MsgspecError):
        return [
            "You have no permission to read Recoveries. A Recovery that has stopped its job starts "
            "the job again."
        ]
    active = [one for one in found if one.active]
    return [
        f"Recovery {one.metadata.namespace}/{one.metadata.name} of {one.spec.gang} is under way "
        f"({one.status.phase}). {_goes_on(one)} `{why(one.spec.gang)}` shows the state."
        for one in active
    ]


def _goes_on(recovery: Recovery) -> str:
    if has_stopped(recovery):
        return "The Recovery has stopped the job, so it continues until the job trains again."
    return "The Recovery has not stopped the job so far. The Recovery ends, and the job stays as it is."


async def _not_done(cluster: Cluster) -> list[str]:
    """Returns one line for each node that takes pods and has a fault on which Rekindle will not act. Jobs are
    not listed: after the pause Rekindle restarts the jobs that are down."""
    try:
        found = [msgspec.json.decode(raw, type=Incident) for raw in await every(cluster, INCIDENTS)]
    except (ApiError, msgspec.MsgspecError):
        return []
    return [line for node, line in _kept_back(found) if not await _is_cordoned(cluster, node)]


async def _is_cordoned(cluster: Cluster, node: str) -> bool:
    """Whether the node is cordoned. A node that the person may not read counts as a node that takes pods."""
    try:
        return bool(decode.node(await cluster.get(NODES, node), ()).unschedulable)
    except (ApiError, msgspec.MsgspecError):
        return False


def _kept_back(incidents: Iterable[Incident]) -> Iterator[tuple[str, str]]:
    """Yields each node with a refused quarantine, and the line about its fault."""
    for incident in incidents:
        if incident.status.phase is not IncidentPhase.OPEN:
            continue
        for record in (*incident.status.actions, *refusals(incident)):
            if record.reason == Why.PAUSED and record.action == Act.QUARANTINE_NODE:
                line = f"{incident.status.summary} ({incident.metadata.name}): `{cordon(record.target)}`"
                yield record.target, one_line(line)


async def _wait_until_seen(cluster: Cluster, namespace: str, *, paused: bool) -> None:
    """Waits until the controller has recorded in its own ConfigMap that the pause is in force, or has
    ended."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + SEEN_WITHIN_S
    what = "pause" if paused else "end of the pause"
    while True:
        try:
            raw = await cluster.get(CONFIGMAPS, STATE, namespace)
            modes = kept_modes(msgspec.json.decode(raw, type=_ConfigMap).data)
        except (ApiError, KeyError, ValueError):
            note(f"ConfigMap {namespace}/{STATE} cannot be read, so what a controller has seen is not known")
            return
        if (modes.paused is not None) == paused:
            print(f"The controller has seen the {what}.")
            return
        if loop.time() >= until_s:
            note(
                f"no controller has seen the {what} within {SEEN_WITHIN_S:g} s; "
                "`rekindle status` says whether a controller leads"
            )
            return
        await asyncio.sleep(_LOOK_S)
