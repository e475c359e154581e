"""Implements the `Cluster` protocol by the REST interface of a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from detectors.client.kubeapi import AnswerTooLarge, KubeApi, ReplyLost, WatchEvent
from detectors.wire.resource import MergePatch, PatchType, Resource
from recover.kube.cluster import ListPage

__all__ = ["RestCluster"]

WATCH_SILENCE_S = 70.0
"""Longest silence of a watch. Where etcd reports progress, bookmarks arrive each minute, and a longer silence
means that the connection is dead. Elsewhere the watch of a quiet kind is renewed after this time."""
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Maximum size of a list, which is kept in memory as a whole. One object may have 1.5 MB."""
_FEWER = 8
"""Divisor of the limit after a list that was too large."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []


class RestCluster:
    """Implements Cluster. Raises `ApiError` for an error answer, and `ReplyLost` if no answer came."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        return await self._api.request("GET", resource.path(name, namespace))

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
        params = {}
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        if page:
            params["continue"] = page
        payload = await self._page(resource.path("", namespace), params, limit)
        try:
            answer = msgspec.json.decode(payload, type=_List)
        except msgspec.MsgspecError as error:
            raise ReplyLost(f"LIST {resource.path('', namespace)}: not a list: {error}") from error
        return ListPage(answer.items, answer.metadata.resource_version, answer.metadata.continue_)

    async def _page(self, path: str, params: dict[str, str], limit: int) -> bytes:
        """Returns a page of at most `limit` objects, and of fewer if they are large. Raises ReplyLost if one
        object alone is too large, or if a server ignores the limit and its answer is too large."""
        while True:
            asked = {"limit": str(limit), **params}
            try:
                return await self._api.request("GET", path, params=asked, bytes_max=ANSWER_BYTES_MAX)
            except AnswerTooLarge as error:
                if limit == 1:
                    raise ReplyLost(f"LIST {path} with limit 1: {error}") from error
                limit = max(1, limit // _FEWER)

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
        timeout_s: float,
    ) -> AsyncIterator[WatchEvent]:
        params = {"resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        return self._api.watch(
            resource.path("", namespace), params=params, timeout_s=timeout_s, silence_s=WATCH_SILENCE_S
        )

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        params = {"fieldValidation": "Strict"} if strict else None
        return await self._api.request("POST", resource.path("", namespace), params=params, body=body)

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
        return await self._api.request(
            "PATCH", resource.path(name, namespace, subresource), body=body, content_type=patch_type
        )

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
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            body["preconditions"] = {k: v for k, v in preconditions.items() if v}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if foreground:
            body["propagationPolicy"] = "Foreground"
        await self._api.request("DELETE", resource.path(name, namespace), body=body)
