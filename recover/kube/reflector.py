"""Keeps one kind's objects in a sink, by list and watch. First stop of the controller's data flow.

Written by hand on purpose: the libraries' watches have no timeouts, hot-loop on empty answers, never list
again after 410, and parse each event three times (measured; DECISIONS.md).
"""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

import msgspec
import structlog
import tenacity

from detectors.kubeapi import ApiError, ReplyLost, Resource, WatchEvent
from recover.kube.cluster import Cluster

__all__ = ["MISSING_LOOK_AGAIN_S", "Reflector", "Sink"]

WATCH_S = (300.0, 600.0)
"""The server ends a watch after a random time in this range, so that reconnects spread out."""
GOOD_WATCH_S = 1.0
BACKOFF_MAX_S = 30.0
MISSING_LOOK_AGAIN_S = 30.0
"""A framework that is not installed may be installed later."""
YIELD_EVERY = 200
"""Events between two looks at the rest of the loop."""

log = structlog.get_logger(__name__)


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


class Sink(Protocol):
    """Where objects go. Neither method may raise for a single malformed object."""

    def replace(self, items: list[msgspec.Raw], version: str) -> None:
        """The whole kind as of `version`: what is not in `items` and not newer is gone."""
        ...

    def apply(self, event: WatchEvent) -> None: ...


class Reflector:
    """`synced` is set after the first complete list, and stays set.

    `optional`: the API server may not know the kind, as of a framework that is not installed. Then there is
    none of it, and the reflector is in step.
    """

    def __init__(self, cluster: Cluster, resource: Resource, sink: Sink, *, optional: bool = False) -> None:
        self._cluster = cluster
        self._resource = resource
        self._sink = sink
        self._optional = optional
        self._version = ""
        self.synced = asyncio.Event()
        self.lists = 0

    async def run(self) -> None:
        """For ever. Errors are logged and retried with a jittered backoff; a good watch resets it."""
        while True:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type((ApiError, ReplyLost)),
                wait=_wait,
                before_sleep=self._say_why,
            ):
                with attempt:
                    await self._list_and_watch()

    async def _list_and_watch(self) -> None:
        if not self._version and not await self._list():
            await asyncio.sleep(MISSING_LOOK_AGAIN_S)
            return
        loop = asyncio.get_running_loop()
        started, began_at, seen = loop.time(), self._version, 0
        try:
            async for event in self._cluster.watch(
                self._resource, resource_version=self._version, timeout_s=random.uniform(*WATCH_S)
            ):
                seen += 1
                self._version = msgspec.json.decode(event.object, type=_Object).metadata.resource_version
                if event.type != "BOOKMARK":
                    self._sink.apply(event)
                if seen % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        except ApiError as error:
            if error.expired:
                self._version = ""
            raise
        except ReplyLost as error:
            if not self._was_good(began_at, started):
                raise
            log.info("watch broke off, going on", kind=self._resource.kind, error=str(error))
            return
        if not self._was_good(began_at, started):
            raise ReplyLost(f"watch of {self._resource.plural} ended at once without news")

    def _was_good(self, began_at: str, started: float) -> bool:
        """It brought news, or was held open: then the next one begins at once, whatever ended it."""
        return self._version != began_at or asyncio.get_running_loop().time() - started >= GOOD_WATCH_S

    async def _list(self) -> bool:
        """Whether the API server knows the kind. Raises ApiError 404 if it must."""
        try:
            await self._list_all()
        except ApiError as error:
            if not (self._optional and error.not_found):
                raise
            if not self.synced.is_set():
                log.info("not installed, looking again from time to time", kind=self._resource.kind)
            self.synced.set()
            return False
        return True

    async def _list_all(self) -> None:
        items: list[msgspec.Raw] = []
        page = ""
        while True:
            answer = await self._cluster.list(self._resource, page=page)
            items += answer.items
            page = answer.next_page
            if not page:
                break
        self._sink.replace(items, answer.resource_version)
        self._version = answer.resource_version
        self.lists += 1
        self.synced.set()

    def _say_why(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ApiError) and error.expired:
            log.info("watch history expired, listing again", kind=self._resource.kind)
            return
        log.warning(
            "cannot follow the API, trying again",
            kind=self._resource.kind,
            error=str(error),
            retry_in_s=round(state.upcoming_sleep, 2),
        )


_exponential = tenacity.wait_random_exponential(multiplier=0.1, max=BACKOFF_MAX_S)


def _wait(state: tenacity.RetryCallState) -> float:
    """At once for the first 410, the server's Retry-After where it gives one, else exponential."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError):
        if error.expired and state.attempt_number == 1:
            return 0.0
        if error.retry_after_s is not None:
            return error.retry_after_s
    return _exponential(state)
