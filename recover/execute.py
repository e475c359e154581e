"""Plan -> API writes. I/O only: what to write, and whether, was decided before.

Every write carries its precondition, and every answer is absorbed into the caches at once. A reply that never
came means unknown: the object is read again, and the next look decides from what it says. A write that the
lease does not allow any more is not sent (recover/kube/fenced.py); the process ends soon.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, assert_never

import msgspec
import structlog
import tenacity

from detectors.kubeapi import ApiError, ReplyLost, Resource
from recover.actions import (
    Action,
    Ask,
    ConfirmGone,
    ConfirmListed,
    Create,
    Delete,
    Emit,
    Ensure,
    Patch,
    Plan,
)
from recover.confirm import confirm_gone, confirm_listed
from recover.diagnose.model import fingerprint
from recover.errors import Permanent, Transient
from recover.guard import QUARANTINE_NODE
from recover.kube.cluster import Cluster
from recover.kube.limiter import Limiter, Urgency
from recover.model import REFUSED_AGAIN_S, Gang, Node, Refusal
from recover.objects import shortened
from recover.observe import Observer
from recover.outside import Outside
from recover.resources import EVENTS, INCIDENTS, NODEHEALTHS, NODES, RECIPES, RECOVERIES
from recover.table import Table
from recover.telemetry import Clock, Metrics

__all__ = ["Executor"]

LOOK_AGAIN_S = 0.2
"""After a write that failed for a passing reason."""

STALE_S = 0.02
"""After a failed precondition: a newer object has been read, so the next decision can be made at once."""

UNTOLD_AGAIN_S = 60.0
"""After a refusal that no decision knows of."""

RIGHTS_AGAIN_S = 5.0
"""Where the API server did not know our rights."""

NOTE_BYTES_MAX = 1024
"""The API server counts bytes, and refuses an Event with more; people's advice need not be in English."""

WORDS_CHARS_MAX = 400
"""Of an API server's refusal, in the log and in what becomes of it."""

CONFLICTS_MAX = 3
"""A training-operator writes a job's status two or three times in a row as a rank fails or a gang ends."""

Slot = Callable[[], AbstractAsyncContextManager[None]]
"""Held around each request or pair of requests, and not while waiting to try again."""

log = structlog.get_logger(__name__)


class _Identity(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)
    status: dict[str, Any] | None = None


class Executor:
    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        metrics: Metrics,
        clock: Clock,
        outside: Outside | None = None,
    ) -> None:
        self._cluster = cluster
        self._outside = outside
        self._observer = observer
        self._metrics = metrics
        self._clock = clock
        self.limiter = Limiter(metrics)
        self._chains = itertools.count()

    async def run(self, plan: Plan) -> float | None:
        """Writes the plan. Returns in how many seconds to look again: sooner than planned after a failure."""
        chains = [chain for chain in plan.chains if chain]
        if not chains:
            return plan.look_again_s
        seen = {id(a): self._seen(a) for a in plan.actions if isinstance(a, Patch)}
        taking = {a.name for a in plan.actions if isinstance(a, Patch) and a.what == QUARANTINE_NODE}
        self._observer.taking |= taking
        try:
            outcomes = await asyncio.gather(*(self._chain(chain, seen) for chain in chains))
        finally:
            self._observer.taking -= taking
        waits = [wait for wait in (*outcomes, plan.look_again_s) if wait is not None]
        return min(waits, default=None)

    async def _chain(self, chain: tuple[Action, ...], seen: Mapping[int, Node | Gang | None]) -> float | None:
        order = next(self._chains)  # what was begun first is finished first
        chain = tuple(
            sorted(chain, key=lambda action: isinstance(action, Emit))
        )  # nothing waits for an Event
        for number, action in enumerate(chain):
            urgency = min(_urgency(later) for later in chain[number:])  # what an act waits for is as urgent
            try:
                await self._write(action, partial(self.limiter.slot, urgency, order), seen.get(id(action)))
            except Transient as error:
                self._note(action, error)
                log.info("write not done, looking again", what=_what(action), why=str(error))
                return error.retry_in_s
            except Permanent as error:
                is_known = self._note(action, error)
                say = log.warning if error.denied else log.error
                say("write refused", what=_what(action), target=_target(action), why=str(error))
                if error.may_pass:
                    return RIGHTS_AGAIN_S
                return REFUSED_AGAIN_S if is_known else UNTOLD_AGAIN_S
            if isinstance(action, Create | Ensure | Patch | Ask):
                self._observer.accepted(action)
        return None

    def _note(self, action: Action, error: Transient | Permanent) -> bool:
        """Keeps a refusal for the decisions; false where they do not read it. A patch that only has to be
        made again, for a newer version, is no refusal; a framework's webhook that is down shows by its
        recovery's deadline."""
        may_pass = isinstance(error, Transient) or error.may_pass
        is_refused = isinstance(error, Permanent) or (error.refused and _is_of_node(action))
        if isinstance(action, Create | Ask) or (isinstance(action, Ensure | Patch) and is_refused):
            refusal = Refusal(self._clock.now(), str(error), may_pass=may_pass)
            return self._observer.refused(action, refusal)
        return False

    async def _write(self, action: Action, slot: Slot, seen: Node | Gang | None) -> None:
        if isinstance(action, Emit):
            await self._emit(action, slot)
            return
        if isinstance(action, Ask):
            await self._ask(action)
            return
        if isinstance(action, ConfirmGone | ConfirmListed):
            await self._confirm(action, slot)
            return
        outcome = "unfinished"
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(_may_pass),
                wait=tenacity.wait_random_exponential(multiplier=0.1, max=5.0),
                stop=tenacity.stop_after_attempt(4),
                reraise=True,
            ):
                with attempt:
                    async with slot():
                        await self._apply(action, seen)
            outcome = "done"
        except ReplyLost as error:
            outcome = "unknown"
            await self._read_again(action)
            raise Transient(str(error), retry_in_s=LOOK_AGAIN_S) from error
        except ApiError as error:
            there = await self._read_again(action)
            stale = error.not_found or (error.stale and not _is_invalid(error, action, there))
            outcome = "stale" if stale else "refused"
            words = _without_values(str(error))
            if stale:
                is_news = there is not None and not _is_as_patched(action, there)
                raise Transient(words, retry_in_s=STALE_S if is_news else LOOK_AGAIN_S) from error
            if _may_pass(error):
                raise Transient(words, retry_in_s=LOOK_AGAIN_S, refused=True) from error
            denied = error.status == 403
            raise Permanent(words, may_pass=error.of_rights, denied=denied) from error
        finally:
            self._metrics.writes.labels(what=_what(action), outcome=outcome).inc()
        log.info("written", what=_what(action), target=_target(action), at=self._clock.now().isoformat())

    async def _confirm(self, asked: ConfirmGone | ConfirmListed, slot: Slot) -> None:
        """Raises Transient unless the API server shows what the cache has shown."""
        try:
            async with slot():
                match asked:
                    case ConfirmGone():
                        await confirm_gone(self._cluster, self._observer, asked)
                    case ConfirmListed():
                        await confirm_listed(self._cluster, self._observer, asked)
        except ReplyLost as error:
            raise Transient(str(error), retry_in_s=LOOK_AGAIN_S) from error
        except ApiError as error:
            if _may_pass(error) or error.of_rights:
                again_s = RIGHTS_AGAIN_S if error.of_rights else LOOK_AGAIN_S
                raise Transient(str(error), retry_in_s=again_s) from error
            raise Permanent(str(error), denied=error.status == 403) from error

    async def _ask(self, request: Ask) -> None:
        """Of a machine outside; sent again at a later look until it is taken."""
        assert self._outside is not None, "a plan asks only where a webhook is set"
        outcome = "refused"
        try:
            await self._outside.ask(request.id, request.body)
            outcome = "done"
        finally:
            self._metrics.writes.labels(what=request.what, outcome=outcome).inc()
        log.info("asked", what=request.what, id=request.id, at=self._clock.now().isoformat())

    async def _apply(self, action: Create | Ensure | Patch | Delete, seen: Node | Gang | None) -> None:
        match action:
            case Create():
                await self._create(action)
            case Ensure():
                await self._ensure(action)
            case Patch():
                await self._patch_as_seen(action, seen)
            case Delete():
                try:
                    await self._cluster.delete(
                        action.resource,
                        action.name,
                        namespace=action.namespace,
                        uid=action.uid,
                        resource_version=action.version,
                        grace_s=action.grace_s,
                        foreground=action.foreground,
                    )
                except ApiError as error:
                    if not error.not_found:
                        raise
            case _:
                assert_never(action)

    async def _create(self, action: Create) -> None:
        """A fresh object gets its status whatever the schema's defaults have put there; one that exists keeps
        a status that it has: it may say more, and the next look brings it up to date."""
        unwritten = True
        try:
            raw = await self._cluster.create(
                action.resource, action.body, action.namespace, strict=action.strict
            )
        except ApiError as error:
            if not error.exists:
                raise
            raw = await self._cluster.get(action.resource, action.name, action.namespace)
            unwritten = not msgspec.json.decode(raw, type=_Object).status
        if action.status is not None and unwritten:
            raw = await self._cluster.patch(
                action.resource,
                action.name,
                {"status": action.status},
                namespace=action.namespace,
                subresource="status",
            )
        self._observer.absorb(action.resource, raw)

    async def _ensure(self, action: Ensure) -> None:
        try:
            await self._cluster.patch(action.resource, action.name, action.body, namespace=action.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            if not action.creates:
                return
            await self._cluster.create(action.resource, _without_nulls(action.body), action.namespace)

    async def _patch_as_seen(self, action: Patch, seen: Node | Gang | None) -> None:
        """A conflict over what no decision reads, as a framework's own counters, is no reason to decide anew:
        the same patch goes to the new version at once."""
        for _ in range(CONFLICTS_MAX):
            try:
                return await self._patch(action)
            except ApiError as error:
                if seen is None or not error.stale:
                    raise
                await self._read_again(action)
                now = self._seen(action)
                if now is None or now.version == action.version:  # what was refused is the change itself
                    raise
                if msgspec.structs.replace(seen, version=now.version) != now:
                    raise
                log.info("conflict over what no decision reads, writing again", what=action.what)
                action = msgspec.structs.replace(action, version=now.version)
        return await self._patch(action)

    def _seen(self, action: Patch) -> Node | Gang | None:
        """What decisions know of the object, if others write to it too and its version is a precondition."""
        key = f"{action.namespace}/{action.name}" if action.namespace else action.name
        tables: tuple[Table[Node] | Table[Gang], ...] = (self._observer.nodes, *self._observer.workloads)
        rows = (table.rows.get(key) for table in tables if table.resource == action.resource)
        return next(rows, None) if action.version else None

    async def _patch(self, action: Patch) -> None:
        metadata: dict[str, Any] = dict(action.body.get("metadata", {}))
        if action.uid:
            metadata["uid"] = action.uid
        if action.version:
            metadata["resourceVersion"] = action.version
        raw = await self._cluster.patch(
            action.resource,
            action.name,
            {**action.body, "metadata": metadata},
            namespace=action.namespace,
            subresource=action.subresource,
            patch_type=action.patch_type,
        )
        self._observer.absorb(action.resource, raw)

    async def _read_again(self, action: Create | Ensure | Patch | Delete) -> bytes | None:
        """The next look shall see what is there now, though the watch may lag behind."""
        try:
            raw = await self._cluster.get(action.resource, action.name, action.namespace)
        except (ApiError, ReplyLost):
            return None
        self._observer.absorb(action.resource, raw)
        return raw

    async def _emit(self, event: Emit, slot: Slot) -> None:
        """Best effort: an Event that cannot be written is logged, and holds nothing up."""
        about = event.regarding
        name = f"{shortened(about['name'], 200)}.{fingerprint(event.reason, event.key, about['uid'])}"
        namespace = about.get("namespace", "default")
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "note": event.message.encode()[:NOTE_BYTES_MAX].decode(errors="ignore"),
            "action": event.reason,
            "regarding": about,
            "reportingController": "rekindle.dev/controller",
            "reportingInstance": "rekindle-controller",
        }
        try:
            async with slot():
                await self._cluster.create(EVENTS, body, namespace)
        except (ApiError, ReplyLost) as error:
            if not (isinstance(error, ApiError) and error.exists):
                log.warning("event not written", reason=event.reason, object=about["name"], why=str(error))


def _is_invalid(error: ApiError, action: Action, there: bytes | None) -> bool:
    """A 422 says that the uid is another's now, or that the content breaks the schema: that stays so."""
    if error.status != 422:
        return False
    if not isinstance(action, Patch) or not action.uid:
        return True
    return there is not None and msgspec.json.decode(there, type=_Object).metadata.uid == action.uid


def _is_of_node(action: Action) -> bool:
    return isinstance(action, Patch) and action.resource == NODES


def _is_as_patched(action: Action, there: bytes) -> bool:
    version = msgspec.json.decode(there, type=_Object).metadata.resource_version
    return isinstance(action, Patch) and action.version == version


def _without_values(words: str) -> str:
    """What the API server says of a field that it refuses, without what stands there: that may be a whole pod
    template, with the secrets that people write into its variables."""
    if len(words) <= WORDS_CHARS_MAX:
        return words
    head, found, rest = words.partition("Invalid value: ")
    return (
        f"{head}{found}(...){rest[rest.rfind(': ') :]}"[:WORDS_CHARS_MAX]
        if found
        else words[:WORDS_CHARS_MAX]
    )


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ApiError) and (error.status == 429 or error.status >= 500)


def _urgency(action: Action) -> Urgency:
    """Incidents, Events and the removal of old objects tell what was done; the rest does it."""
    if isinstance(action, Ask):
        return Urgency.ACT
    if isinstance(action, Emit) or action.resource == INCIDENTS:
        return Urgency.REPORT
    if action.resource in (NODEHEALTHS, RECIPES):
        return Urgency.UPKEEP
    if isinstance(action, Delete) and action.resource == RECOVERIES:
        return Urgency.REPORT
    return Urgency.ACT


def _what(action: Action) -> str:
    return action.reason if isinstance(action, Emit) else action.what


def _target(action: Action) -> str:
    if isinstance(action, Emit):
        return action.regarding["name"]
    if isinstance(action, Ask):
        return action.id
    if isinstance(action, ConfirmListed):
        return _path(action.resource, action.namespace, action.labels)
    return _path(action.resource, action.namespace, action.name)


def _path(resource: Resource, namespace: str, name: str) -> str:
    return f"{resource.plural}/{namespace}/{name}" if namespace else f"{resource.plural}/{name}"


def _without_nulls(value: Any) -> Any:
    """A merge patch as the object that it would create."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value
