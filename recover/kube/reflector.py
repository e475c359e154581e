"""Keeps one kind's objects in a sink, by list and watch. This is the first stop of the controller's data
flow.

The reflector is written by hand on purpose: the libraries' watches have no timeouts, hot-loop on empty
answers, never list again after 410, and parse each event three times (measured; docs/decisions/0004).

It begins with a list in pages: for 100,000 pods that takes a third of the CPU time of a streamed list, in
which each object is an event. Objects reach the sink page by page, so no second copy of the kind is kept.
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

__all__ = ["MISSING_REQUEUE_S", "OLDER_S_MAX", "Reflector", "RestoredError", "Sink"]

WATCH_S = (300.0, 600.0)
"""The server ends a watch after a random time in this range, so that reconnects spread out."""
GOOD_WATCH_S = 0.5
"""Duration after which a watch counts as good although it brought no event. A good watch that breaks or ends
is started again at once; without events this happens at most twice a second."""
BACKOFF_MAX_S = 10.0
"""Longest wait between two tries, unless the server requests a longer wait (`RETRY_AFTER_S_MAX`). At worst,
all kinds together send two requests a second; after an outage, a recovery waits no longer than this."""
RETRY_AFTER_S_MAX = 120.0
"""Longest Retry-After that the reflector accepts. A longer wait that a server or a proxy requests would leave
the controller blind."""
OLDER_S_MAX = 60.0
"""Time after which the controller ends if the API server has answered with older versions only. An API server
that lags catches up within seconds; an etcd that was restored from a backup does not."""
SILENT_S = 30.0
"""Duration of a watch without any event or bookmark after which the reflector asks for the present
version."""
MISSING_REQUEUE_S = 30.0
"""Pause until the next try for a kind that is not installed: a framework may be installed later."""
TURN_S = 0.005
"""Time for reading objects before the other tasks of the event loop get their turn."""

log = structlog.get_logger(__name__)


class Sink(Protocol):
    """The receiver of the objects. No method may raise for a single malformed object."""

    def begin(self) -> None:
        """Begins a list of the whole kind. An earlier list that was begun and not finished removes no
        object."""
        ...

    def listed(self, item: msgspec.Raw) -> None: ...

    def finish(self, version: str) -> None:
        """Ends the list, which is complete as of `version`. An object that was not in the list and is not
        newer is gone."""
        ...

    def apply(self, event: WatchEvent) -> None: ...

    def owes_list(self) -> bool:
        """Whether a list would bring more than the watch. The reflector calls this at the end of each
        watch."""
        ...


class _Unusable(Exception):
    """The server has answered, but the reflector cannot continue from the answer."""


class RestoredError(Exception):
    """The API server has lost changes that the cache contains: its etcd was restored from a backup. This
    process must end, because only a new one begins with empty caches."""


class Reflector:
    """Follows one kind. `synced` is set after the first complete list, and stays set.

    With `optional`, the API server may not know the kind, such as that of a framework that is not installed.
    Then no such object exists, and `synced` is set. With `namespace` and the selectors only the selected
    objects are kept.
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
        self._older_since_s: float | None = None
        """Time of the first answer that was older than the cache; None if the last answer was not older."""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Runs forever. Errors are logged and retried with a jittered backoff; a good watch resets it. Raises
        RestoredError."""
        while True:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type((ApiError, ReplyLost, _Unusable)),
                wait=_wait,
                before_sleep=self._say_why,
            ):
                with attempt:
                    await self._follow()

    async def _follow(self) -> None:
        """Runs one watch, from its beginning to its end, and before it a list if one is needed."""
        try:
            if not self._version:
                await self._list()
            began_at, began_s = self._version, asyncio.get_running_loop().time()
            await self._watch()
            if self._version == began_at and asyncio.get_running_loop().time() - began_s >= SILENT_S:
                await self._refuse_silence()
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
        self._version, self._highest, self._older_since_s = version, int(version), None
        self.synced.set()

    async def _refuse_silence(self) -> None:
        """Asks for one object after a silent watch. A watch from a version that the API server has not
        reached shows nothing, and no error."""
        answer = await self._cluster.list(self._resource, limit=1, **self._of)
        self._refuse_older(answer.resource_version)

    def _refuse_older(self, version: str) -> None:
        """Refuses a list that is older than what was seen: the API server lags, or its etcd was restored from
        a backup. Only a new process accepts such a list, so this process ends after a while."""
        if _number(version) >= self._highest:
            return
        self._version = ""  # once the server has reached that version again, its history is another one
        now_s = asyncio.get_running_loop().time()
        if self._older_since_s is None:
            self._older_since_s = now_s
        why = f"list of {self._resource.plural} as of version {version}, although {self._highest} was seen"
        if now_s - self._older_since_s >= OLDER_S_MAX:
            log.error("the API server was set back, ending: etcd was restored from a backup", why=why)
            raise RestoredError(why)
        raise _Unusable(why)

    # --- watching -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Runs one watch. Returns after a good watch that broke or ended: a watch that brought an event or
        was open long enough. Raises after any other watch, and if the server reports an error."""
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
        """Takes an event. The version only grows, so a watch that is resumed never goes back."""
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
    """One turn of the event loop while many objects are read. The time is that of the loop's own clock, so
    that a simulation behaves the same on each machine."""

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
    """Returns the wait in seconds: none for the first 410, the server's Retry-After if it gives one,
    otherwise an exponential wait."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError):
        if error.expired and state.attempt_number == 1:
            return 0.0
        if error.retry_after_s is not None:
            return min(error.retry_after_s, RETRY_AFTER_S_MAX)
    return _exponential(state)
