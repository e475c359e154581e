"""The independent observer of a bench: a separate process that reports when each change became visible.

The observer watches the API server, stamps every event with its time of arrival, and prints one JSON line for
each. It shares the watch client with the controller, and asks neither controller nor agent about itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chaos.bench.seen import GONE, POKE, READY, Seen
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi, WatchEvent
from detectors.wire.resource import Resource
from recover.api.marks import QUARANTINE, UNHEALTHY
from recover.k8s.kinds import (
    INCIDENTS,
    JOBS,
    JOBSETS,
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PADDLEJOBS,
    PODS,
    PYTORCHJOBS,
    RECOVERIES,
    TFJOBS,
)
from recover.kube.arguments import add_connection, connection

__all__ = ["main"]

WATCH_S = 3600.0
_READY = ("Ready", "True")


class _Owner(msgspec.Struct):
    name: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: list[_Owner] = []
    annotations: dict[str, str] = {}
    deletion_timestamp: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def _node(thing: _Object) -> list[str]:
    facts = ["tainted" for taint in thing.spec.get("taints", []) if taint["key"] == UNHEALTHY]
    facts += ["closed" for taint in thing.spec.get("taints", []) if taint["effect"] == "NoSchedule"]
    facts += ["ready" for c in thing.status.get("conditions", []) if (c["type"], c["status"]) == _READY]
    if QUARANTINE in thing.metadata.annotations:
        facts.append("quarantined")
    return [*facts, "cordoned"] if thing.spec.get("unschedulable") else facts


def _health(thing: _Object) -> list[str]:
    findings = [f["code"] for f in thing.status.get("findings", []) if "clearedAt" not in f]
    covered = [row["source"] for row in thing.status.get("coverage", []) if row["state"] == "covered"]
    return [*findings, *covered, thing.status.get("bootId", "")]


def _job(thing: _Object) -> list[str]:
    suspend = thing.spec.get("suspend") or thing.spec.get("runPolicy", {}).get("suspend")
    return ["suspended" if suspend else "started"]


def _phase(thing: _Object) -> list[str]:
    phase = str(thing.status.get("phase", ""))
    return [phase, "ending"] if thing.metadata.deletion_timestamp else [phase]


def _namespace(thing: _Object) -> list[str]:
    return [thing.metadata.annotations.get(POKE, "")]


_FACTS: Mapping[Resource, Callable[[_Object], list[str]]] = {
    NAMESPACES: _namespace,
    NODES: _node,
    NODEHEALTHS: _health,
    JOBS: _job,
    PYTORCHJOBS: _job,
    PADDLEJOBS: _job,
    TFJOBS: _job,
    JOBSETS: _job,
    PODS: _phase,
    RECOVERIES: _phase,
    INCIDENTS: _phase,
}


def _seen(resource: Resource, event: WatchEvent, at_s: float) -> Seen:
    raw = bytes(event.object)
    thing = msgspec.json.decode(raw, type=_Object)
    meta = thing.metadata
    return Seen(
        at_s=at_s,
        kind=resource.plural,
        name=meta.name,
        uid=meta.uid,
        facts=(GONE,) if event.type == "DELETED" else tuple(_FACTS[resource](thing)),
        owner=meta.owner_references[0].name if meta.owner_references else "",
        node=str(thing.spec.get("nodeName", "")) if resource == PODS else "",
        size_bytes=len(raw),
    )


def _tell(seen: Seen) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
    sys.stdout.buffer.flush()


async def _watch(api: KubeApi, resource: Resource, version: str) -> None:
    """Watches without end. An API server ends the watch of a reader that is slow for a moment, as on a busy
    machine; the next watch continues after the last event. If the watch cannot continue, the process ends."""
    while True:
        params = {"resourceVersion": version}
        async for event in api.watch(resource.path(), params=params, timeout_s=WATCH_S, silence_s=WATCH_S):
            _tell(_seen(resource, event, time.time()))
            version = msgspec.json.decode(event.object, type=_Object).metadata.resource_version


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw]


async def _listed(api: KubeApi, resource: Resource) -> str | None:
    """Reports all existing objects. Returns the version from which to watch, or None for a kind that is not
    installed."""
    try:
        answer = msgspec.json.decode(await api.request("GET", resource.path()), type=_List)
    except ApiError as error:
        if not error.not_found:
            raise
        return None
    for item in answer.items:
        _tell(_seen(resource, WatchEvent("ADDED", item), time.time()))
    return answer.metadata.resource_version


async def _observe(credentials: Credentials) -> None:
    async with KubeApi(credentials) as api, asyncio.TaskGroup() as watches:
        for resource in _FACTS:
            version = await _listed(api, resource)
            if version is not None:
                watches.create_task(_watch(api, resource, version))
        _tell(Seen(time.time(), READY))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.bench.observer", description=__doc__)
    add_connection(parser)
    options = parser.parse_args()

    async def observe() -> None:
        await _observe(await connection(options))

    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(observe())


if __name__ == "__main__":
    main()
