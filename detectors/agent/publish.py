"""Builds the status patch and writes it: edges at once, counts within ten minutes. It also writes an
unchanged status again before it becomes so old that the controller takes the agent for dead.

The publisher is between the core and the API. It always sends the complete latest status, so a lost or
refused write loses no edge: the next write contains it. The reply contains this node's spec.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import structlog
import tenacity

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.folds.core import AgentCore, Dirty
from detectors.folds.status_size import bounded
from detectors.service.metrics import Metrics
from detectors.service.settings import Publishing
from detectors.wire.contract import GROUP, VERSION, NodeHealth, NodeHealthStatus
from detectors.wire.resource import MergePatch, Resource

__all__ = ["NODE_HEALTHS", "Publisher", "content", "patch_body"]

NODE_HEALTHS = Resource(GROUP, VERSION, "nodehealths", "NodeHealth", namespaced=False)

_log = structlog.get_logger("publish")
_FIELDS = NodeHealthStatus.__struct_encode_fields__
_NOT_CONTENT = ("observedAt", "kmsg")


class Api(Protocol):
    """The one call of `KubeApi` that the agent makes."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes: ...


def patch_body(status: NodeHealthStatus) -> dict[str, Any]:
    """Returns a merge patch that makes the stored status equal to `status`.

    Structs leave defaults out, and a merge patch keeps fields that it does not name. Therefore the patch
    names each field, with null for those to remove.
    """
    fields = msgspec.to_builtins(status, str_keys=True)
    return {"status": {name: fields.get(name) for name in _FIELDS}}


def content(status: NodeHealthStatus) -> bytes:
    """Returns the part of a status that is compared with the last written one: all but the time of writing
    and the position in the kernel log."""
    body = patch_body(status)["status"]
    return msgspec.json.encode({name: value for name, value in body.items() if name not in _NOT_CONTENT})


class Publisher:
    """Writes one node's status and takes its spec from the replies. Call `wake` after the core has
    changed."""

    def __init__(
        self,
        api: Api,
        node: str,
        core: AgentCore,
        settings: Publishing,
        metrics: Metrics,
        *,
        on_reply: Callable[[NodeHealth], None],
    ) -> None:
        self._api = api
        self._path = NODE_HEALTHS.path(node, subresource="status")
        self._core = core
        self._settings = settings
        self._metrics = metrics
        self._on_reply = on_reply
        self._wake = asyncio.Event()
        self._written = b""
        self._stored_at: datetime | None = None
        """Time of the status that the API has, as written in that status."""
        self._written_at_s = time.monotonic()
        self._answered_at_s: float | None = None
        self._object_answered = False
        self._writes: deque[float] = deque(maxlen=settings.burst_writes)

    @property
    def ready(self) -> bool:
        """Whether the API has recently answered with our own object."""
        answered = self._answered_at_s
        return (
            answered is not None
            and self._object_answered
            and time.monotonic() - answered < self._settings.ready_within_s
        )

    def wake(self) -> None:
        if self._core.dirty is Dirty.EDGE:
            self._wake.set()

    async def first_reply(self) -> NodeHealth | None:
        """Returns our object as it is, or None if the controller has not created it yet. Waits for the
        API."""
        try:
            async for attempt in self._attempts(retry_missing=False):
                with attempt:
                    return await self._patch({})
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._wait()
            if self._owes_write():
                await self._write()
            else:
                await self._ask()

    async def flush(self, timeout_s: float) -> None:
        """Makes one last try when the agent stops. The next run reads lost evidence again from the kernel's
        log."""
        if self._core.dirty is Dirty.NOTHING:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._send()
        except (ApiError, ReplyLost, OSError) as error:
            _log.warning("last status not written", error=str(error))

    async def _wait(self) -> None:
        self._wake.clear()
        if self._core.dirty is Dirty.EDGE:
            await self._spread()
            return
        try:
            # Do not use wait_for: before Python 3.12 it loses a cancellation that comes together with the
            # event.
            async with asyncio.timeout(self._next_due_s()):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._spread()

    def _next_due_s(self) -> float:
        now_s = time.monotonic()
        due_s = (self._answered_at_s or 0.0) + self._core.ask_every_s(datetime.now(UTC))
        if self._core.dirty is Dirty.COARSE:
            due_s = min(due_s, self._written_at_s + self._settings.refresh_s)
        if self._settings.idle_refresh_s:
            due_s = min(due_s, self._written_at_s + self._settings.idle_refresh_s)
        return max(0.0, due_s - now_s)

    async def _spread(self) -> None:
        """Waits if there were many edges: a burst of edges is sent at once, and a storm of them is spread
        over time."""
        if len(self._writes) == self._writes.maxlen:
            rest_s = self._writes[0] + self._settings.burst_window_s - time.monotonic()
            if rest_s > 0:
                await asyncio.sleep(rest_s)

    def _owes_write(self) -> bool:
        if self._core.dirty is Dirty.COARSE and self._is_older_than(self._settings.refresh_s):
            return True
        return self._core.dirty is Dirty.EDGE or self._is_too_old()

    def _is_too_old(self) -> bool:
        """Whether the status must be written again because of its age: if an agent writes nothing for too
        long, the controller takes the agent for dead."""
        idle_s = self._settings.idle_refresh_s
        return idle_s > 0 and self._is_older_than(idle_s)

    def _is_older_than(self, seconds: float) -> bool:
        return time.monotonic() - self._written_at_s >= seconds

    async def _write(self) -> None:
        async for attempt in self._attempts():
            with attempt:
                await self._send()

    async def _ask(self) -> None:
        async for attempt in self._attempts():
            with attempt:
                await self._patch({})

    async def _send(self) -> None:
        status = bounded(self._core.status(datetime.now(UTC)), priority_uids=self._core.priority_pods)
        now_content = content(status)
        self._core.mark_written()
        if now_content == self._written and not self._is_too_old():
            return
        try:
            await self._patch(patch_body(status))
        except BaseException:
            # also if the reply was lost: writing the same status again does no harm
            self._core.mark_unwritten()
            raise
        self._written = now_content
        self._written_at_s = time.monotonic()
        self._writes.append(self._written_at_s)

    async def _patch(self, body: dict[str, Any]) -> NodeHealth:
        kind = "write" if body else "ask"
        try:
            payload = await self._api.request("PATCH", self._path, body=body, content_type=MergePatch)
        except ApiError as error:
            self._metrics.api_calls.labels(kind, str(error.status)).inc()
            self._answered_at_s, self._object_answered = time.monotonic(), False
            raise
        except ReplyLost:
            self._metrics.api_calls.labels(kind, "lost").inc()
            raise
        self._metrics.api_calls.labels(kind, "ok").inc()
        self._answered_at_s, self._object_answered = time.monotonic(), True
        reply = _decode(payload)
        if reply is not None:
            self._see(reply.status, is_ours=bool(body))
            self._on_reply(reply)
        return reply or NodeHealth()

    def _see(self, status: NodeHealthStatus, *, is_ours: bool) -> None:
        """Detects a status that is not ours. The deletion of a Node also deletes its NodeHealth, and a
        restored backup contains an older one. In both cases the controller does not know what the agent has
        written, so the agent writes everything again."""
        if not is_ours and self._written and status.observed_at != self._stored_at:
            _log.warning("our NodeHealth is not as we wrote it, writing all of it again")
            self._written = b""
            self._core.mark_unwritten()
        self._stored_at = status.observed_at

    def _attempts(self, *, retry_missing: bool = True) -> tenacity.AsyncRetrying:
        def again(error: BaseException) -> bool:
            if isinstance(error, ApiError):
                return retry_missing or not error.not_found
            return isinstance(error, ReplyLost | OSError)  # a token file may be gone for a moment

        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(again),
            wait=self._pause_s,
            before_sleep=_tell,
            reraise=True,
        )

    def _pause_s(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ApiError):
            if error.not_found:
                return self._settings.missing_retry_s
            if error.retry_after_s is not None:
                return min(error.retry_after_s, self._settings.retry_max_s)
        backoff = tenacity.wait_random_exponential(multiplier=0.2, max=self._settings.retry_max_s)
        return backoff(state)


def _decode(payload: bytes) -> NodeHealth | None:
    """Returns the reply, or None if it cannot be parsed: the write itself has happened."""
    try:
        return msgspec.json.decode(payload, type=NodeHealth)
    except msgspec.MsgspecError as error:
        _log.error("reply of the API is not a NodeHealth; its spec is ignored", error=str(error))
        return None


def _tell(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError) and error.not_found:
        if state.attempt_number == 1:
            _log.info("no NodeHealth of this node yet; waiting for the controller to create it")
        return
    next_s = state.next_action.sleep if state.next_action else 0.0
    _log.warning("status not written yet", error=str(error), next_try_s=round(next_s, 1))
