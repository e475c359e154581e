"""Reads a long list page by page. If a page is lost or too slow, it is requested again, later with fewer
objects. If one request in twenty is lost, a list that begins again after each loss would never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec
import tenacity

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.kube.cluster import Cluster, ListPage

__all__ = ["PAGE_BYTES", "PAGE_MAX", "PAGE_MIN", "PAGE_TRIES", "Pages"]

PAGE_MIN, PAGE_MAX = 100, 1000
"""Number of objects in the first answer of a list, and maximum in any answer."""
PAGE_BYTES = 4 * 1024 * 1024
"""Approximate size of a page. A page is kept in memory as a whole."""
PAGE_TRIES = 8
RETRY_AFTER_S_MAX = 30.0
"""Longest wait between two tries. The token of a page is valid for some minutes."""

_PASSING = frozenset({429, 500, 502, 503, 504})
_SLOW = 504


class Pages:
    """Lists of one kind. The longest possible page is remembered from one list to the next."""

    def __init__(
        self, cluster: Cluster, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> None:
        self._of = {"namespace": namespace, "labels": labels}
        if fields:
            self._of["fields"] = fields
        self._cluster = cluster
        self._resource = resource
        self._limit = PAGE_MIN
        self._most = PAGE_MAX
        self._lost = 0
        """Number of lost answers in a row."""

    async def read(self) -> AsyncGenerator[ListPage]:
        """Yields the pages. While the caller processes a page, the API server prepares the next one.

        Raises ApiError and ReplyLost: at once if the first page fails or the API server has forgotten the
        list (410), otherwise after several tries.
        """
        self._limit = min(PAGE_MIN, self._most)
        answer = await self._ask("")
        while answer.next_page:
            following = asyncio.create_task(self._until_answered(answer.next_page))
            try:
                yield answer
                answer = await following
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        yield answer

    async def _until_answered(self, page: str) -> ListPage:
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=_wait,
            stop=tenacity.stop_after_attempt(PAGE_TRIES),
            reraise=True,
        ):
            with attempt:
                return await self._ask(page)
        raise AssertionError("the last try has returned or raised")

    async def _ask(self, page: str) -> ListPage:
        try:
            answer = await self._cluster.list(self._resource, page=page, limit=self._limit, **self._of)
        except (ApiError, ReplyLost) as error:
            if isinstance(error, ReplyLost) or error.status == _SLOW:
                self._shrink()
            raise
        self._lost = 0
        self._most = min(PAGE_MAX, self._most + self._most // 8 + 1)
        self._limit = min(_fitting(answer.items), self._most)
        return answer

    def _shrink(self) -> None:
        """Halves the page after two losses in a row. A connection may break at any time, but two losses in a
        row may mean that the page is too long."""
        self._lost += 1
        if self._lost > 1:
            self._limit = self._most = max(1, self._limit // 2)


def _fitting(items: Sequence[msgspec.Raw]) -> int:
    """Returns the number of objects to request next, judged by the size of these."""
    size = sum(memoryview(item).nbytes for item in items)
    return max(1, PAGE_BYTES * len(items) // size) if size else PAGE_MIN


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ReplyLost) or (isinstance(error, ApiError) and error.status in _PASSING)


_exponential = tenacity.wait_random_exponential(multiplier=0.1, max=5.0)


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError) and error.retry_after_s is not None:
        return min(error.retry_after_s, RETRY_AFTER_S_MAX)
    return _exponential(state)
