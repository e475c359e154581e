"""Keeps one kind's objects in a sink, by list and watch. First stop of the controller's data flow.

Written by hand on purpose: the libraries' watches have no timeouts, hot-loop on empty answers, never list
again after 410, and parse each event three times (measured; docs/decisions/0004).

In step first, by a list in pages: 100,000 pods cost a third of the CPU time of a streamed list, of which each
object is an event. Objects reach the sink page by page, so no second copy of the kind is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Protocol

import msgspec
import structlog
import tenacity

from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from detectors.wire.contract import GROUP
from detectors.wire.resource import Resource
from recover.k8s.identities import Version, Versioned
from recover.kube.cluster import Cluster
from recover.kube.pages import Pages

__all__ = ["MISSING_REQUEUE_S", "Reflector", "Sink"]

WATCH_S = (300.0, 600.0)
"""The server ends a watch after a random time in this range, so that reconnects spread out."""
GOOD_WATCH_S = 0.5
"""A watch that was held so long is taken up again at once, whatever has broken it: at most twice a second."""
BACKOFF_MAX_S = 10.0
"""At worst two requests a second for all kinds together; after an outage a recovery waits no longer."""
RETRY_AFTER_S_MAX = 120.0
"""A longer wait that a server or a proxy asks for would leave the controller blind."""
MISSING_REQUEUE_S = 30.0
"""A framework that is not installed may be installed later."""
TURN_S = 0.005
"""Of reading, before the rest of the event loop has its turn."""

log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where objects go. No method may raise for a single malformed object."""

    def begin(self) -> None:
        """A list of the whole kind begins. One that was begun before and never finished tells nothing."""
        ...

    def listed(self, item: msgspec.Raw) -> None: ...

    def finish(self, version: str) -> None:
        """The list is complete as of `version`: what was not in it and is not newer is gone."""
        ...

    def apply(self, event: WatchEvent) -> None: ...

    def owes_list(self) -> bool:
        """Whether a list would tell more than the watch; asked at the end of each watch."""
        ...


class _Unusable(Exception):
    """An answer that came and cannot be gone on from."""


class Reflector:
    """`synced` is set after the first complete list, and stays set.

    `optional`: the API server may not know the kind, as of a framework that is not installed. Then there is
    none of it, and the reflector is in step. With `namespace` and the selectors only these objects are kept.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        sink: Sink,
        *,
        optional: bool = False,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> None:
        self._of = {"namespace": namespace, "labels": labels}
        if fields:
            self._of["fields"] = fields
        self._pages = Pages(cluster, resource, **self._of)
        self._cluster = cluster
        self._resource = resource
        self._sink = sink
        self._optional = optional
        self._version = ""
        self._highest = 0
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """For ever. Errors are logged and retried with a jittered backoff; a good watch resets it."""
        while True:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type((ApiError, ReplyLost, _Unusable)),
                wait=_wait,
                before_sleep=self._say_why,
            ):
                with attempt:
                    await self._follow()

    async def _follow(self) -> None:
        """One watch, from its beginning to its end; before it a list, where one is needed."""
        try:
            if not self._version:
                await self._list()
            await self._watch()
            if self._sink.owes_list():
                self._version = ""
        except ApiError as error:
            if error.expired or error.not_found:
                self._version = ""
            if not (self._optional and error.not_found):
                raise
            if not self.synced.is_set():
                log.info("not installed, looking again from time to time", kind=self._resource.kind)
            self.synced.set()
            await asyncio.sleep(MISSING_REQUEUE_S)

    # --- getting in step ----------------------------------------------------------------------------------

    async def _list(self) -> None:
        self._sink.begin()
        version = ""
        async with contextlib.aclosing(self._pages.read()) as pages:
            async for answer in pages:
                version = answer.resource_version
                self._refuse_older(version)
                turn = _Turn()
                for item in answer.items:
                    self._sink.listed(item)
                    await turn.may_end()
        self._in_step(version)

    def _in_step(self, version: str) -> None:
        self._refuse_older(version)
        self._sink.finish(version)
        self._version, self._highest = version, int(version)
        self.synced.set()

    def _refuse_older(self, version: str) -> None:
        """An API server that lags, or an etcd set back to a backup: then only a restart believes it."""
        if _number(version) < self._highest:
            raise _Unusable(
                f"list of {self._resource.plural} as of version {version}, although {self._highest} was seen"
            )

    # --- watching -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Returns after a good watch: one that brought news or was held open, whatever ended it."""
        began_at, started = self._version, asyncio.get_running_loop().time()
        turn = _Turn()
        try:
            async for event in self._cluster.watch(
                self._resource,
                **self._of,
                resource_version=self._version,
                timeout_s=random.uniform(*WATCH_S),
            ):
                self._take(event)
                await turn.may_end()
        except ReplyLost as error:
            if not self._was_good(began_at, started):
                raise
            log.info("watch broke off, going on", kind=self._resource.kind, error=str(error))
            return
        if not self._was_good(began_at, started):
            raise _Unusable(f"watch of {self._resource.plural} ended at once without news")

    def _was_good(self, began_at: str, started: float) -> bool:
        return self._version != began_at or asyncio.get_running_loop().time() - started >= GOOD_WATCH_S

    def _take(self, event: WatchEvent) -> None:
        """The version only grows: a watch that is resumed never goes back."""
        self._highest = max(self._highest, _number(self._meta(event).resource_version))
        self._version = str(self._highest)
        if event.type != "BOOKMARK":
            self._sink.apply(event)

    def _meta(self, event: WatchEvent) -> Version:
        try:
            return msgspec.json.decode(event.object, type=Versioned).metadata
        except msgspec.MsgspecError as error:
            raise _Unusable(f"{event.type} event of {self._resource.plural}: {error}") from error

    def _say_why(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ApiError) and error.expired:
            log.info("watch history expired, listing again", kind=self._resource.kind)
            return
        if isinstance(error, ApiError) and error.not_found and self._resource.group == GROUP:
            log.warning(
                "CRD not installed, trying again: rekindle crds | kubectl apply -f -",
                kind=self._resource.kind,
                retry_in_s=round(state.upcoming_sleep, 2),
            )
            return
        log.warning(
            "cannot follow the API, trying again",
            kind=self._resource.kind,
            error=str(error),
            retry_in_s=round(state.upcoming_sleep, 2),
        )


class _Turn:
    """Of the event loop, while many objects are read. By the loop's own clock: a simulation is the same on
    each machine."""

    def __init__(self) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._ends_s = self._now_s() + TURN_S

    async def may_end(self) -> None:
        if self._now_s() > self._ends_s:
            await asyncio.sleep(0)
            self._ends_s = self._now_s() + TURN_S


def _number(version: str) -> int:
    try:
        return int(version)
    except ValueError:
        raise _Unusable(f"resourceVersion {version!r} is no number") from None


_exponential = tenacity.wait_random_exponential(multiplier=0.1, max=BACKOFF_MAX_S)


def _wait(state: tenacity.RetryCallState) -> float:
    """At once for the first 410, the server's Retry-After where it gives one, else exponential."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError):
        if error.expired and state.attempt_number == 1:
            return 0.0
        if error.retry_after_s is not None:
            return min(error.retry_after_s, RETRY_AFTER_S_MAX)
    return _exponential(state)
