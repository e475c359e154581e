"""Renders the texts that a person could read during scripts of the simulator: every object that Rekindle
writes, change by change, and the output of `rekindle why` and `rekindle status` at those moments.

The scripts run on a virtual clock, so two runs render the same text. The objects come one after the other,
each in the order of its own changes: nobody sees which of two objects is written first at one moment.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from tests.golden import rooms
from tests.golden.stories import lines_of, lines_of_overview
from tests.golden.text import form_of, plain

__all__ = ["DRAWN", "IN_REPAIR", "played"]

DRAWN = (7, 15, 25)
IN_REPAIR = (4, 6)
"""Seeds, chosen for the sentences that they show: `python -m tests.golden --share` prints the share."""

_Moment = tuple[datetime, int]
"""A time and the version of the store at that time."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_OURS = "rekindle.dev/"
_NO_NEWS = frozenset({"resourceVersion", "managedFields", "creationTimestamp", "uid", "generation"})
_LOOK_EVERY_S = 30.0
"""Minimum seconds between two renderings of the stories."""


def played(drawn: Iterable[int] = DRAWN, in_repair: Iterable[int] = IN_REPAIR) -> Iterator[str]:
    told: set[str] = set()
    scripts = [(f"seed {n}", rooms.script_of(n)) for n in drawn]
    scripts += [(f"seed {n} in mode repair", rooms.repair_script_of(n)) for n in in_repair]
    for name, script in scripts:
        sim, moments = _run(script)
        yield from ("", f"==== {name}", *str(script).splitlines())
        yield from _objects(sim, told)
        yield from asyncio.run(_stories(sim, moments, told))


def _run(script: rooms.Script) -> tuple[rooms.Simulation, list[_Moment]]:
    """Runs the script. Returns the simulation and the moments at which the controller had written
    something."""
    moments: list[_Moment] = []
    story = rooms.story_of(script)

    async def seen(sim: rooms.Simulation) -> None:
        store = sim.cluster.store
        checked = store.before_reply
        assert checked is not None

        async def wrote(audit: rooms.Audit) -> None:
            if audit.user == rooms.CONTROLLER and audit.changed:
                if moments and (audit.at - moments[-1][0]).total_seconds() < _LOOK_EVERY_S:
                    moments.pop()
                moments.append((audit.at, store.version))
            await checked(audit)

        store.before_reply = wrote
        await story(sim)

    return rooms.play(seen, script.setup), moments


# --- objects ----------------------------------------------------------------------------------------------


def _objects(sim: rooms.Simulation, told: set[str]) -> Iterator[str]:
    for resource in sorted(rooms.KINDS, key=lambda one: one.kind):
        changes: dict[tuple[str, str], list[dict[str, Any] | None]] = {}
        history = sim.cluster.store.history(resource)
        for change in history.since(history.dropped_until):
            changes.setdefault(change.key, []).append(change.new.body if change.new is not None else None)
        for key, bodies in sorted(changes.items()):
            lines = [line for line in _object(resource, bodies) if _is_new(line, told)]
            if lines:
                yield from ("", f"-- {resource.kind} {'/'.join(filter(None, key))}", *map(_plain, lines))


def _object(resource: rooms.Resource, bodies: list[dict[str, Any] | None]) -> Iterator[str]:
    before: dict[str, str] = {}
    for body in bodies:
        now = dict(_shown(resource, body)) if body is not None else {}
        for path, value in now.items():
            if before.get(path) != value:
                yield f"{path}: {value}"
        before = now


def _shown(resource: rooms.Resource, body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the fields that Rekindle has written in the object, by the path of each field."""
    meta = body["metadata"]
    if resource in (rooms.INCIDENTS, rooms.RECOVERIES):
        yield from _flat("spec", body.get("spec", {}))
        yield from _flat("status", body.get("status", {}))
    elif resource == rooms.NODEHEALTHS:
        yield from _flat("spec", body.get("spec", {}))
        status = body.get("status", {})
        yield from _flat("findings", status.get("findings", []))
        yield from _flat("coverage", status.get("coverage", []))
    elif resource == rooms.EVENTS:
        yield "event", f"{body.get('type')} {body.get('reason')}: {body.get('message', body.get('note'))}"
    for kind in ("labels", "annotations"):
        for name, value in sorted(meta.get(kind, {}).items()):
            if _OURS in name:
                yield f"{kind}.{name}", value
    if resource == rooms.NODES:
        yield from _flat("taints", [t for t in body["spec"].get("taints", []) if _OURS in t["key"]])


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in sorted(value.items()):
            yield from _flat(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(f"{path}[]", inner) if isinstance(inner, dict) else [(f"{path}[]", str(inner))]
    else:
        yield path, str(value)


# --- stories ----------------------------------------------------------------------------------------------


class _Past:
    """The API as it was at one moment of a run, for the production code that reads it."""

    def __init__(self, sim: rooms.Simulation) -> None:
        self._coming = {
            resource: deque(history.since(history.dropped_until))
            for resource in rooms.KINDS
            for history in [sim.cluster.store.history(resource)]
        }
        self._there: dict[rooms.Resource, dict[tuple[str, str], bytes]] = {r: {} for r in rooms.KINDS}

    def goes_on(self, version: int) -> None:
        for resource, coming in self._coming.items():
            there = self._there[resource]
            while coming and coming[0].version <= version:
                change = coming.popleft()
                if change.new is not None:
                    there[change.key] = change.new.raw
                else:
                    there.pop(change.key, None)

    async def list(
        self,
        resource: rooms.Resource,
        *,
        namespace: str = "",
        labels: str = "",
        limit: int = 0,
        page: str = "",
    ) -> rooms.ListPage:
        del labels, limit, page
        there = sorted(self._there[resource].items())
        return rooms.ListPage([msgspec.Raw(raw) for key, raw in there if namespace in ("", key[0])], "1")


async def _stories(sim: rooms.Simulation, moments: list[_Moment], told: set[str]) -> list[str]:
    """Returns for each moment only the lines that did not appear before."""
    lines: list[str] = []
    past: Any = _Past(sim)
    for at, version in moments:
        past.goes_on(version)
        said = await _asked(past, at)
        if new := [line for line in said if _is_new(line, told)]:
            lines += ["", f"-- asked at {_since(at)}", *map(_plain, new)]
    return lines


async def _asked(past: Any, at: datetime) -> list[str]:
    """Returns the output of the commands about the cluster, each node, and each job."""
    seen = await rooms.read(past)
    said = list(
        lines_of_overview(
            rooms.overview(
                rooms.StatusFacts(
                    nodes=seen.nodes, health=seen.health, incidents=seen.incidents, recoveries=seen.recoveries
                ),
                at,
            )
        )
    )
    for name in sorted(seen.nodes.keys() | {i.spec.node for i in seen.incidents if i.spec.node}):
        said += lines_of(
            rooms.why_node(name, seen.nodes.get(name), seen.health.get(name), seen.incidents, at)
        )
    for gang in seen.gangs:
        found = rooms.find(f"{gang.ref.kind.lower()}/{gang.ref.name}", seen, gang.ref.namespace)
        assert isinstance(found, rooms.Job)
        ranks = await rooms.ranks_of(past, gang)
        around = rooms.Around(nodes=seen.nodes, namespaces=seen.namespaces, pods=ranks)
        said += lines_of(rooms.why_job(found, seen.recoveries, seen.incidents, at, around))
    return said


# --- text -------------------------------------------------------------------------------------------------


def _is_new(line: str, told: set[str]) -> bool:
    """Whether no line of the same form, apart from numbers, has appeared before."""
    form = form_of(_plain(line))
    if form in told:
        return False
    told.add(form)
    return True


def _since(at: datetime) -> str:
    return f"{(at - rooms.START).total_seconds():+.0f} s"


def _plain(line: str) -> str:
    return _TIME.sub(lambda found: _since(datetime.fromisoformat(found[0])), plain(line))
