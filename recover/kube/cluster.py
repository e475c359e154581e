"""Defines the operations of a Kubernetes API that the controller needs. There are two implementations:
kube/rest.py sends requests to an API server, chaos/apiserver/client.py to an API server in memory. Both run
the same contract tests.

Objects cross this interface as JSON bytes: readers decode the fields they need, and nothing is ever read,
changed and written back whole (unknown fields would be lost). Failures are `ApiError` (an error status) and
`ReplyLost` (no answer: unknown whether a write happened).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from detectors.client.kubeapi import WatchEvent
from detectors.wire.resource import MergePatch, PatchType, Resource

__all__ = ["Cluster", "ListPage", "every"]


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list: objects as bytes, the list's resourceVersion, and the token of the next page."""

    items: list[msgspec.Raw]
    resource_version: str
    next_page: str = ""


class Cluster(Protocol):
    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes: ...

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
        """Returns one page of a consistent list (the request names no resourceVersion). An empty namespace
        means all namespaces. `labels` and `fields` are selectors. A page has at most `limit` objects, and
        fewer if the objects are large."""
        ...

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
        """Yields the events after `resource_version`: ADDED, MODIFIED, DELETED, BOOKMARK. `ApiError` 410
        means that the caller must list again."""
        ...

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        """Creates the object. With `strict`, `ApiError` 400 names a field that the kind does not have;
        without it, the API server drops such a field without a message."""
        ...

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
        """Patches the object. A resourceVersion or uid in the body's metadata is a precondition. If it is not
        met, the error is 409, or 422 for a wrong uid."""
        ...

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
        """Deletes the object. `uid` and `resource_version` are preconditions, if given. `grace_s=0` removes a
        pod at once. `foreground` keeps the object, marked as being deleted, until all objects that it owns
        have gone. Without `foreground` a Job leaves its pods behind, which no other kind does with the
        objects that it owns."""
        ...


async def every(
    cluster: Cluster, resource: Resource, *, namespace: str = "", labels: str = ""
) -> list[bytes]:
    """Returns all objects, page after page. Raises ApiError, ReplyLost."""
    found: list[bytes] = []
    page = ""
    while True:
        answer = await cluster.list(resource, namespace=namespace, labels=labels, page=page)
        found += (bytes(item) for item in answer.items)
        page = answer.next_page
        if not page:
            return found
