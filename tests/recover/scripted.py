"""Implements a Cluster that gives the answers of a test's script, and records the requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from detectors.client.kubeapi import ApiError, WatchEvent
from detectors.wire.resource import MergePatch, PatchType, Resource
from recover.k8s.kinds import NODES
from recover.kube.cluster import ListPage
from recover.model.actions import Patch

__all__ = [
    "CONFLICT",
    "EXISTS",
    "GONE",
    "INVALID",
    "MISSING",
    "Scripted",
    "WatchedEnough",
    "event",
    "quarantine",
    "raw",
]

MISSING = ApiError(404, "NotFound", "no such object")
CONFLICT = ApiError(409, "Conflict", "the object has been modified")
EXISTS = ApiError(409, "AlreadyExists", "it exists")
INVALID = ApiError(422, "Invalid", "metadata.name: too long")
GONE = ApiError(410, "Expired", "too old resource version")


def raw(name: str, version: int, *, namespace: str = "ml", uid: str = "", **parts: Any) -> bytes:
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"{name}-uid"}
    return msgspec.json.encode({"metadata": {**metadata, "resourceVersion": str(version)}, **parts})


def event(type_: str, name: str, version: int, **parts: Any) -> WatchEvent:
    return WatchEvent(type_, msgspec.Raw(raw(name, version, **parts)))


class Scripted:
    """Gives each call the next answer of its method: bytes (or a page, or events), or an error to raise.

    A method without further answers gives its default: an empty object, an empty list, or a watch that
    never ends. A number among the events is a silence of as many seconds.
    """

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.strict: list[bool] = []

    def _next(self, method: str, name: str, default: Any) -> Any:
        self.calls.append((method, name))
        script = self.answers.get(method, [])
        answer = script.pop(0) if script else default
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        answer: bytes = self._next("get", name, raw(name, 1))
        return answer

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        page: str = "",
    ) -> ListPage:
        answer: ListPage = self._next("list", page, ListPage([], "1"))
        return answer

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
        timeout_s: float,
    ) -> AsyncIterator[WatchEvent]:
        for found in self._next("watch", resource_version, [None]):
            if found is None:
                raise WatchedEnough
            if isinstance(found, Exception):
                raise found
            if isinstance(found, int):
                await asyncio.sleep(found)
                continue
            yield found

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        self.bodies.append(body)
        self.strict.append(strict)
        name = body["metadata"]["name"]
        answer: bytes = self._next("create", name, raw(name, 1))
        return answer

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = MergePatch,
    ) -> bytes:
        self.bodies.append(body)
        answer: bytes = self._next("patch", name, raw(name, 2))
        return answer

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        foreground: bool = False,
    ) -> None:
        self._next("delete", name, None)


class WatchedEnough(Exception):
    """Leaves Reflector.run when the script of watches has ended."""


def quarantine(effect: str) -> Patch:
    """Returns a patch that taints node n1."""
    body = {"spec": {"taints": [{"key": "rekindle.dev/unhealthy", "effect": effect}]}}
    return Patch(what="quarantine-node", resource=NODES, name="n1", uid="n1-uid", version="7", body=body)
