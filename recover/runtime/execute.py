"""Sends the writes of a plan to the API server. I/O only: the decisions are made before.

Every write contains its precondition, and the executor absorbs every answer into the caches at once. If the
connection breaks before the answer, nobody knows whether the write took place: the executor reads the object
again, and the next reconcile decides from that version. Once the lease no longer allows writes, none is sent
(recover/kube/fenced.py), and the process ends soon.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeGuard

import msgspec
import structlog
import tenacity

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.api import Act
from recover.api.repair_state import StepKind
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES, RECIPES, RECOVERIES
from recover.kube.clock import Clock
from recover.kube.cluster import Cluster
from recover.kube.errors import Permanent, Transient
from recover.model import REFUSED_AGAIN_S, Gang, Node, Refusal
from recover.model.actions import (
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
from recover.runtime.answers import has_patched_version, is_invalid, may_pass, without_values
from recover.runtime.confirm import confirm_gone, confirm_listed
from recover.runtime.limiter import Limiter, Urgency
from recover.runtime.observe import Observer
from recover.runtime.refusals import Write
from recover.runtime.requests import Requests
from recover.runtime.telemetry import Metrics
from recover.runtime.webhook import Outside
from recover.triage.held_back_incidents import ALARMS
from recover.triage.quarantine import takes_out
from recover.triage.restarts import OPEN_RECOVERY
from recover.workloads.patches import DELETE_JOB, START, STOP

__all__ = ["Executor"]

REQUEUE_S = 0.2
"""Pause until the next reconcile after a write that failed for a passing reason."""

STALE_S = 0.02
"""Pause until the next reconcile after a failed precondition. A newer object has been read, so the next
decision can be made at once."""

UNTOLD_AGAIN_S = 60.0
"""Pause after a refused write before the next reconcile, if no decision takes note of the refusal."""

PERMISSIONS_AGAIN_S = 5.0
"""Pause until the next reconcile if the API server did not know our permissions."""

DECISION_S_MAX = 5.0
"""Greatest age of a decision at which a write that begins something new is still sent: later, people may have
set a hold, or the brake may have engaged. A decision is this old only if the API server has requested a wait,
or answers slowly."""

OUTCOME_S_MAX = 30.0
"""Longest time for which the executor tries to learn the outcome of a write without an answer."""

Slot = Callable[[], AbstractAsyncContextManager[None]]
"""A slot of the limiter. It is taken for each request or pair of requests, and released while the executor
waits for the next try."""

Chain = tuple[Action, ...]

_BEGINS = frozenset(
    {
        Act.QUARANTINE_NODE.value,
        Act.RELEASE_NODE.value,
        OPEN_RECOVERY,
        STOP,
        *(f"{kind}-node" for kind in StepKind),
    }
)
"""Writes that begin something new. They are not sent if the facts behind the decision may have changed during
the wait for a slot."""

log = structlog.get_logger(__name__)


class _OutdatedError(Exception):
    """The write is not sent because people have paused Rekindle since the decision, or because the decision
    is too old."""


class _Decision(msgspec.Struct, frozen=True):
    """The facts that a chain keeps about the moment of its decision."""

    at_s: float
    """Time by the clock of the event loop."""
    was_paused: bool
    seen: Mapping[int, Node | Gang | None]
    """Objects that the patches of the chain were decided from, by the ids of the patches."""


class Executor:
    """Writes the chains of plans. The actions of one chain are written in their order, and a failure ends the
    chain; chains do not wait for each other, except for the slots of the limiter."""

    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        metrics: Metrics,
        clock: Clock,
        outside: Outside | None = None,
    ) -> None:
        self._cluster = cluster
        self._requests = Requests(cluster, observer)
        self._outside = outside
        self._observer = observer
        self._metrics = metrics
        self._clock = clock
        self.limiter = Limiter(metrics)
        self._chains = itertools.count()
        self._being_quarantined: Counter[str] = Counter()
        """Node -> number of chains in flight that take the node out of service."""
        self._being_started: Counter[str] = Counter()
        """Uid of a gang -> number of chains in flight that open a Recovery of the gang, or start the gang."""

    @property
    def being_quarantined(self) -> frozenset[str]:
        """Nodes whose quarantine is being written, from the moment of its decision."""
        return frozenset(self._being_quarantined)

    @property
    def being_started(self) -> frozenset[str]:
        """Uids of the gangs whose restart or start is being written, from the moment of its decision."""
        return frozenset(self._being_started)

    async def run(self, plan: Plan, events: asyncio.TaskGroup | None = None) -> float | None:
        """Writes the plan. Returns in how many seconds to reconcile again, sooner than planned after a
        failure, or None if nothing requires another reconcile. If the plan has one chain, the caller
        continues directly after the last answer to that chain, before any other task does. If `events` is
        given, the Events become tasks of this group, and nobody waits for them."""
        writing = [self.begin(chain, events) for chain in plan.chains if chain]
        waits = [plan.requeue_after_s]
        if len(writing) == 1:
            waits.append(await writing.pop())
        for outcome in await asyncio.gather(*writing, return_exceptions=True):
            if isinstance(outcome, BaseException):  # a defect; the other chains are written nevertheless
                raise outcome
            waits.append(outcome)
        return min((wait for wait in waits if wait is not None), default=None)

    def begin(
        self, chain: Chain, events: asyncio.TaskGroup | None = None
    ) -> Coroutine[Any, Any, float | None]:
        """Remembers what the decision knew of the objects. From now on budgets count the quarantines of the
        chain, and places are reserved for the gangs that it starts. Call this at the moment of the decision.
        Returns a coroutine that writes the chain, and returns in how many seconds to reconcile again after a
        failure, otherwise None. If `events` is given, the Events become tasks of this group, and nobody waits
        for them."""
        decision = _Decision(
            asyncio.get_running_loop().time(),
            self._is_paused(),
            {id(a): self._requests.seen(a) for a in chain if isinstance(a, Patch)},
        )
        patches = [action for action in chain if isinstance(action, Patch)]
        in_flight = [(self._being_quarantined, patch.name) for patch in patches if takes_out(patch)]
        in_flight += [(self._being_started, uid) for uid in map(_started, chain) if uid]
        for counter, name in in_flight:
            counter[name] += 1
        return self._begun(chain, decision, in_flight, events)

    async def _begun(
        self,
        chain: Chain,
        decision: _Decision,
        in_flight: Iterable[tuple[Counter[str], str]],
        events: asyncio.TaskGroup | None,
    ) -> float | None:
        try:
            return await self._chain(chain, decision, events)
        finally:
            for counter, name in in_flight:  # `-=` of a Counter would iterate over everything in flight
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]

    async def _chain(
        self, chain: Chain, decision: _Decision, events: asyncio.TaskGroup | None
    ) -> float | None:
        order = next(self._chains)  # the chain that began first is finished first
        # Events come last, so that no other action waits for an Event.
        told = [action for action in chain if isinstance(action, Emit)]
        acts = [action for action in chain if not isinstance(action, Emit)]
        for number, action in enumerate(acts):
            # an action before an urgent one is as urgent
            urgency = min(_urgency(later) for later in acts[number:])
            try:
                kind = "" if isinstance(action, Ask) else action.resource.plural
                slot = partial(self.limiter.slot, urgency, order, kind=kind)
                news = await self._write(action, slot, decision)
            except _OutdatedError as why:
                log.info("write not done, deciding again", what=_what(action), why=str(why))
                return REQUEUE_S
            except Transient as error:
                self._note(action, error)
                log.info("write not done, trying again", what=_what(action), why=str(error))
                return error.retry_in_s
            except Permanent as error:
                is_told = _is_of_a_status(action) and self._observer.refusals.is_known(action, str(error))
                is_known = self._note(action, error)
                say = log.debug if is_told else log.warning if error.denied else log.error
                say("write refused", what=_what(action), target=_target(action), why=str(error))
                if error.may_pass:
                    return PERMISSIONS_AGAIN_S
                return REFUSED_AGAIN_S if is_known else UNTOLD_AGAIN_S
            if isinstance(action, Write):
                self._observer.refusals.forget(action)
            told += [news] if news is not None else []
        for event in told:
            if events is None:
                await self._emit(event, order)
            else:
                events.create_task(self._emit(event, order))
        return None

    def _is_paused(self) -> bool:
        pause = self._observer.pause()
        return pause is not None and pause.lasts(self._clock.now())

    def _check_age(self, action: Action, decision: _Decision) -> None:
        """Raises _OutdatedError if the action begins something new, and must be decided again. A pause counts
        from the moment when it is seen, also for a decision that waits to be written. A decision that was
        made in a pause has considered the pause."""
        if _what(action) not in _BEGINS:
            return
        if self._is_paused() and not decision.was_paused:
            raise _OutdatedError("Rekindle was paused after the decision")
        age_s = asyncio.get_running_loop().time() - decision.at_s
        if age_s > DECISION_S_MAX:
            raise _OutdatedError(f"the decision is {age_s:.0f} s old")

    def _note(self, action: Action, error: Transient | Permanent) -> bool:
        """Keeps a refusal for the decisions. Returns False for a failure that the decisions do not read. A
        failed precondition is no refusal: the next reconcile makes the patch for the newer version. A patch
        of a job that fails because a framework's webhook is down is no refusal either, since the deadline of
        the recovery shows the failure."""
        may_pass = isinstance(error, Transient) or error.may_pass
        is_refused = isinstance(error, Permanent) or (error.refused and _has_no_deadline(action))
        if isinstance(action, Create | Ask) or (isinstance(action, Ensure | Patch | Delete) and is_refused):
            is_of_permissions = isinstance(error, Permanent) and error.may_pass
            again_s = PERMISSIONS_AGAIN_S if is_of_permissions else REFUSED_AGAIN_S
            refusal = Refusal(self._clock.now(), str(error), may_pass=may_pass, again_s=again_s)
            return self._observer.refused(action, refusal)
        return False

    async def _write(self, action: Action, slot: Slot, decision: _Decision) -> Emit | None:
        """Makes one action. Returns an Event about something that people must know, or None."""
        if isinstance(action, Ask):
            await self._ask(action)
            return None
        if isinstance(action, ConfirmGone | ConfirmListed):
            await self._confirm(action)
            return None
        assert not isinstance(action, Emit), "Events are written after the chain"
        outcome, news = "unfinished", None
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(may_pass),
                wait=tenacity.wait_random_exponential(multiplier=0.1, max=5.0),
                stop=tenacity.stop_after_attempt(4),
                reraise=True,
            ):
                with attempt:
                    async with slot():
                        self._check_age(action, decision)
                        news = await self._requests.apply(action, decision.seen.get(id(action)))
            outcome = "done"
        except _OutdatedError:
            outcome = "stale"
            raise
        except ReplyLost as error:
            outcome = "unknown"
            await self._learn_outcome(action)
            raise Transient(str(error), retry_in_s=REQUEUE_S) from error
        except ApiError as error:
            there = await self._requests.read_again(action)
            stale = error.not_found or (error.stale and not is_invalid(error, action, there))
            outcome = "stale" if stale else "refused"
            words = without_values(str(error))
            if stale:
                is_news = there is not None and not has_patched_version(action, there)
                raise Transient(words, retry_in_s=STALE_S if is_news else REQUEUE_S) from error
            if may_pass(error):
                raise Transient(words, retry_in_s=REQUEUE_S, refused=True) from error
            denied = error.status == 403
            raise Permanent(words, may_pass=error.of_permissions, denied=denied) from error
        finally:
            self._metrics.writes.labels(what=_what(action), outcome=outcome).inc()
        log.info("written", what=_what(action), target=_target(action), at=self._clock.now().isoformat())
        return news

    async def _learn_outcome(self, action: Create | Ensure | Patch | Delete) -> None:
        """Reads the object until the API server answers. A quarantine whose outcome is unknown counts in the
        budgets meanwhile, since its chain is still in flight."""
        reading = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(lambda is_known: not is_known),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
            stop=tenacity.stop_after_delay(OUTCOME_S_MAX),
            retry_error_callback=lambda _: False,
        )
        await reading(self._requests.read_outcome, action)

    async def _confirm(self, asked: ConfirmGone | ConfirmListed) -> None:
        """Compares the API server's answer with the cache. Raises Transient if they differ or no answer came,
        and Permanent if the API server refuses the read."""
        try:
            async with self.limiter.read(asked.namespace):
                match asked:
                    case ConfirmGone():
                        await confirm_gone(self._cluster, self._observer, asked)
                    case ConfirmListed():
                        await confirm_listed(self._cluster, self._observer, asked)
        except ReplyLost as error:
            raise Transient(str(error), retry_in_s=REQUEUE_S) from error
        except ApiError as error:
            if may_pass(error) or error.of_permissions:
                again_s = PERMISSIONS_AGAIN_S if error.of_permissions else REQUEUE_S
                raise Transient(str(error), retry_in_s=again_s) from error
            raise Permanent(str(error), denied=error.status == 403) from error

    async def _emit(self, event: Emit, order: int) -> None:
        """Writes an Event. An Event that cannot be written is logged and delays nothing."""
        about = event.regarding["name"]
        try:
            async with self.limiter.slot(Urgency.REPORT, order, learns=False):
                await self._requests.emit(event, self._clock.now())
        except (ApiError, ReplyLost) as error:
            log.warning("event not written", reason=event.reason, object=about, why=str(error))
        except Exception:  # the task may belong to a group whose other tasks must go on
            log.exception("event not written", reason=event.reason, object=about)

    async def _ask(self, request: Ask) -> None:
        """Sends a request to a system outside the cluster. A later reconcile sends it again until the system
        has accepted it."""
        assert self._outside is not None, "a plan asks only where a webhook is set"
        outcome = "refused"
        try:
            await self._outside.ask(request.id, request.body)
            outcome = "done"
        finally:
            self._metrics.writes.labels(what=request.what, outcome=outcome).inc()
        log.info("asked", what=request.what, id=request.id, at=self._clock.now().isoformat())


def _started(action: Action) -> str:
    """Returns the uid of the gang that the action starts, or for which it opens a Recovery, or whose job it
    deletes to create the job again. Returns an empty string for any other action."""
    if isinstance(action, Patch | Delete) and action.what in (START, DELETE_JOB):
        return action.uid
    if isinstance(action, Create) and action.what == OPEN_RECOVERY:
        return str(action.body["spec"]["gang"]["uid"])
    return ""


def _has_no_deadline(action: Action) -> bool:
    """Whether no deadline belongs to the write. If its refusal were not kept, nobody would notice that the
    write is never made."""
    return isinstance(action, Delete) or (isinstance(action, Patch) and action.resource == NODES)


def _urgency(action: Action) -> Urgency:
    """Returns the urgency of a write. Incidents and Events report. NodeHealths, Recipes, the conditions of
    Nodes and the deletion of old objects are upkeep. A soft taint only tells the scheduler what to prefer.
    All other writes act."""
    if isinstance(action, Ask):
        return Urgency.ACT
    if isinstance(action, Patch) and action.what == Act.QUARANTINE_NODE and not takes_out(action):
        return Urgency.PREFERENCE
    if isinstance(action, Emit):
        return Urgency.REPORT
    if isinstance(action, Delete) and action.resource in (INCIDENTS, RECOVERIES):
        return Urgency.UPKEEP
    if action.resource == INCIDENTS:
        return Urgency.ALARM if action.what in ALARMS else Urgency.REPORT
    if action.resource in (NODEHEALTHS, RECIPES) or _is_of_a_status(action):
        return Urgency.UPKEEP
    return Urgency.ACT


def _is_of_a_status(action: Action) -> TypeGuard[Patch]:
    """Whether the action writes Rekindle's condition into the status of a Node. The condition only informs
    people and tools, and nothing waits for it."""
    return isinstance(action, Patch) and action.resource == NODES and action.subresource == "status"


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
