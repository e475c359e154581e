"""Limits how many writes are in flight at once, and decides whose turn it is. execute.py takes a slot here
before each write.

Acts on nodes, jobs and pods go before reports, so that the reports of a storm of findings do not delay a
stop. While acts are in flight, and for a moment after them, reports wait even if a slot is free, since each
request also takes time of the API server from the others. Among the reports, a report about many nodes comes
first, and waits for no act. Writes to the NodeHealths of agents, other writes of upkeep, and the deletion of
old objects come last.

Two groups of writes have at most half of the slots, so that the others go on if nobody answers these: the
reports, except those about many nodes, because Events are often in a separate etcd; and, once a write to a
kind is slow, all writes to this kind, because its webhook may hang. Before the first of them is slow, eight
such writes delay the others for `SLOW_S`.

If the API server reports overload (429, 503), the limiter halves the number of slots, and waits as long as
Retry-After requests, 30 s at most. With success the slots come back one at a time. The answers to Events
count for nothing here: many clusters limit the rate of Events alone (the admission plugin EventRateLimit). A
slow write releases its slot before it is answered: it waits for a webhook or for the network, and other
writes need not wait for that.

Live reads take no slot of a write. They have a few places of their own, and one namespace gets only some of
these places, so that reads of one namespace that hang delay only the acts that wait for them.

There is no limit on the rate: API servers, too, limit the number of requests in flight, and 8 slots are about
430 writes a second (measured).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from enum import IntEnum

import structlog

from detectors.client.kubeapi import ApiError
from recover.runtime.telemetry import Metrics

__all__ = [
    "ACTS_ALONE_S",
    "ACTS_ALONE_S_MAX",
    "READS_MAX",
    "READS_OF_ONE_MAX",
    "SLOTS_MAX",
    "SLOW_MAX",
    "SLOW_S",
    "Limiter",
    "Urgency",
]

SLOTS_MAX = 8
"""Number of slots. More writes in flight gain no throughput and cost latency (measured on an API server: the
knee is at 4-8)."""
SLOW_S = 0.25
"""Time after which an unanswered write makes room for another. If the webhook of a framework hangs, all stops
of this framework hang, and eight stops would delay all other writes for this time."""
SLOW_MAX = 56
"""Maximum number of slow writes at once; further slow writes keep their slots."""
READS_MAX = 8
"""Maximum number of live reads at once. Together with all writes and watches they stay below the client's
limit of connections (kubeapi.py)."""
READS_OF_ONE_MAX = 4
"""Maximum number of live reads of one namespace, or of objects without a namespace."""
ACTS_ALONE_S = 0.025
"""Time after the last act for which reports still wait. The answer to an act is often the reason for the next
act, as in the stop after the creation of the Recovery."""
ACTS_ALONE_S_MAX = 0.25
"""Longest time for which acts delay a report that could have a slot."""
RETRY_AFTER_S_MAX = 30.0
"""Longest wait that the limiter accepts. A longer wait that a server or a proxy requests would leave broken
gangs as they are."""

REPORTS = "reports"
"""The group of all reports. No kind has this name as its plural."""

log = structlog.get_logger(__name__)


class Urgency(IntEnum):
    """The urgency of a write. Lower values go first."""

    ACT = 0
    ALARM = 1
    """Writes about many nodes at once, which people must see soon."""
    PREFERENCE = 2
    """Soft taints, which keep no pod off a node."""
    REPORT = 3
    UPKEEP = 4
    """Writes that may come for each node at once. No decision waits for them."""


def is_overload(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.status in (429, 503)


_Turn = tuple[Urgency, int, int, "_Held", asyncio.Future[None]]
"""A write that waits: urgency, order, a number that no other write has, the slot that it will have, and the
future that lets it in."""


class _Held:
    """The slot of one write."""

    is_slow = False

    def __init__(self, urgency: Urgency, kind: str) -> None:
        self.is_act = urgency is Urgency.ACT
        self.is_report = urgency >= Urgency.REPORT
        self.group = REPORTS if self.is_report else kind
        """The writes that share half of the slots if some of them hang."""


class Limiter:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._slots = SLOTS_MAX
        self._in_flight = 0
        self._slow = 0
        """Number of writes that have released their slots and are not answered yet."""
        self._slow_of: Counter[str] = Counter()
        """The same number by group."""
        self._held_of: Counter[str] = Counter()
        """Number of writes that occupy a slot, by group."""
        self._acts = 0
        """Number of acts that occupy a slot."""
        self._acts_until_s = -math.inf
        """Time at which the last act released its slot, by the clock of the event loop."""
        self._kept_since_s: float | None = None
        """Time since which reports wait for acts; None if none waits."""
        self._reports_turn: asyncio.TimerHandle | None = None
        """Timer of the reports that wait for acts."""
        self._waiting: list[_Turn] = []
        self._parked: dict[str, list[_Turn]] = {}
        """Writes whose group has its half of the slots, by group. They wait beside the others."""
        self._numbers = itertools.count()
        self._reading: Counter[str] = Counter()
        """Reads in flight, by namespace."""
        self._to_read: dict[str, deque[asyncio.Future[None]]] = {}
        """Reads that wait, by namespace. The namespace whose turn is next comes first."""
        self._good = 0
        """Number of requests without an overload error since the number of slots changed."""
        self._halvings = 0
        self._pause: asyncio.TimerHandle | None = None
        """Timer of the wait that the API server has requested."""

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def in_flight(self) -> int:
        return self._in_flight + self._slow + self._reading.total()

    def waiting(self) -> Counter[Urgency]:
        """Returns the number of waiting requests by urgency. Reads count as acts, since acts wait for
        them."""
        turns = itertools.chain(self._waiting, *self._parked.values())
        found = Counter(urgency for urgency, *_, turn in turns if not turn.done())
        reads = sum(not turn.done() for turns in self._to_read.values() for turn in turns)
        return found + Counter({Urgency.ACT: reads})

    @asynccontextmanager
    async def slot(
        self, urgency: Urgency, order: int = 0, *, kind: str = "", learns: bool = True
    ) -> AsyncIterator[None]:
        """Occupies a slot for one write to that kind, and adapts to its outcome if `learns`. Among writes of
        one urgency the lowest order goes first, then the earliest."""
        held = _Held(urgency, kind)
        await self._take(urgency, order, held)
        making_room = asyncio.get_running_loop().call_later(SLOW_S, self._make_room, held)
        try:
            with self._learning() if learns else nullcontext():
                yield
        finally:
            making_room.cancel()
            if held.is_slow:
                self._slow -= 1
                self._slow_of -= Counter((held.group,))
                self._unpark(held.group)
                self._let_in()
            else:
                self._release(held)

    @asynccontextmanager
    async def read(self, namespace: str) -> AsyncIterator[None]:
        """Occupies a place for one live read, and adapts to its outcome. The namespaces take turns; within a
        namespace the earliest read goes first."""
        await self._take_read(namespace)
        try:
            with self._learning():
                yield
        finally:
            self._end_read(namespace)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        halvings = self._halvings
        try:
            yield
        except ApiError as error:
            if is_overload(error):
                self._slow_down(error, began_in=halvings)
            else:
                self._went_well()
            raise
        else:
            self._went_well()

    def _make_room(self, held: _Held) -> None:
        if self._slow < SLOW_MAX and self._slow_of[held.group] < SLOW_MAX // 2:
            held.is_slow = True
            self._slow += 1
            self._slow_of[held.group] += 1
            self._release(held)

    async def _take(self, urgency: Urgency, order: int, held: _Held) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, order, next(self._numbers), held, turn))
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            # let in and cancelled at the same moment: the slot goes to the next write
            if not turn.cancelled():
                self._release(held)
            raise

    def _let_in(self) -> None:
        while self._waiting and self._in_flight < self._slots and self._pause is None:
            *_, held, turn = self._waiting[0]
            if turn.cancelled():
                heapq.heappop(self._waiting)
            elif self._has_its_half(held.group):
                self._parked.setdefault(held.group, []).append(heapq.heappop(self._waiting))
            elif held.is_report and not self._is_turn_of_reports():
                return
            else:
                heapq.heappop(self._waiting)
                self._occupy(held)
                turn.set_result(None)
        if not self._waiting and not self._parked:
            self._kept_since_s = None

    def _has_its_half(self, group: str) -> bool:
        """Whether the group has all the slots that it may have."""
        is_limited = group == REPORTS or self._slow_of[group] > 0
        return is_limited and self._held_of[group] >= max(1, self._slots // 2)

    def _unpark(self, group: str) -> None:
        for turn in self._parked.pop(group, ()):
            heapq.heappush(self._waiting, turn)

    def _occupy(self, held: _Held) -> None:
        self._in_flight += 1
        self._held_of[held.group] += 1
        self._acts += held.is_act

    def _release(self, held: _Held) -> None:
        self._in_flight -= 1
        self._held_of -= Counter((held.group,))
        self._acts -= held.is_act
        if held.is_act:
            self._acts_until_s = asyncio.get_running_loop().time()
        self._unpark(held.group)
        self._let_in()

    def _is_turn_of_reports(self) -> bool:
        """Whether acts leave a report its turn now. If they do not, a timer asks again."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        quiet_s = math.inf if self._acts else self._acts_until_s + ACTS_ALONE_S
        since_s = now_s if self._kept_since_s is None else self._kept_since_s
        turn_s = min(quiet_s, since_s + ACTS_ALONE_S_MAX)
        if turn_s <= now_s:
            return True
        self._kept_since_s = since_s
        if self._reports_turn is not None:
            self._reports_turn.cancel()
        self._reports_turn = loop.call_at(turn_s, self._let_in)
        return False

    async def _take_read(self, namespace: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._to_read.setdefault(namespace, deque()).append(turn)
        self._let_read()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # as in `_take`
                self._end_read(namespace)
            raise

    def _end_read(self, namespace: str) -> None:
        self._reading -= Counter((namespace,))
        self._let_read()

    def _let_read(self) -> None:
        while self._reading.total() < min(READS_MAX, self._slots) and self._pause is None:
            free = (space for space in self._to_read if self._reading[space] < READS_OF_ONE_MAX)
            namespace = next(free, None)
            if namespace is None:
                return
            turns = self._to_read.pop(namespace)
            turn = turns.popleft()
            if turns:
                self._to_read[namespace] = turns  # behind the others
            if not turn.cancelled():
                self._reading[namespace] += 1
                turn.set_result(None)

    def _slow_down(self, error: ApiError, *, began_in: int) -> None:
        """Halves the number of slots. `began_in` is the number of halvings before the refused write was sent:
        of several writes that are refused together, only the first halves the slots."""
        self._metrics.writes_throttled.inc()
        if error.retry_after_s:
            self._wait(min(error.retry_after_s, RETRY_AFTER_S_MAX))
        if began_in == self._halvings:
            self._halvings += 1
            self._good, self._slots = 0, max(1, self._slots // 2)
            log.warning("API server overloaded, fewer writes at once", slots=self._slots, why=str(error))

    def _wait(self, wait_s: float) -> None:
        """Admits no request for that time. A longer wait that is already under way stays in force."""
        loop = asyncio.get_running_loop()
        if self._pause is not None:
            if self._pause.when() >= loop.time() + wait_s:
                return
            self._pause.cancel()
        self._pause = loop.call_later(wait_s, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._let_in()
        self._let_read()

    def _went_well(self) -> None:
        self._good += 1
        if self._good >= self._slots and self._slots < SLOTS_MAX:
            self._good, self._slots = 0, self._slots + 1
            for group in list(self._parked):
                self._unpark(group)
            self._let_in()
            self._let_read()
