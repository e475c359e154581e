"""How many writes are under way at once, and whose turn it is. execute.py asks here before each write.

Acts on nodes, jobs and pods go before reports, so a storm of findings does not hold a stop up behind its own
paperwork. Of the reports the one about many nodes comes first; Events have their place among the others,
since a chain holds its object until its Event is told. What all agents are told, and deletions of old
objects, come last. When the API server says that it has too much to do (429, 503), the number of slots is
halved and what it asks for with Retry-After is waited; with success they come back one at a time. A write
that is slow gives its slot back before it is answered: it waits for a webhook or for the network, and others
need not. Live reads take no slot of a write: they have a few places of their own, of which the namespaces
have their turns, so that reads that hang hold up no act but their own. There is no limit on the rate: API
servers, too, bound what is in flight, and 8 slots are about 430 writes a second (measured).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import IntEnum

import structlog

from detectors.client.kubeapi import ApiError
from recover.runtime.telemetry import Metrics

__all__ = ["READS_MAX", "READS_OF_ONE_MAX", "SLOTS_MAX", "SLOW_MAX", "SLOW_S", "Limiter", "Urgency"]

SLOTS_MAX = 8
"""More writes in flight gain no throughput and cost latency (measured on an API server: 4-8 is the knee)."""
SLOW_S = 1.0
"""A write that has taken this long makes room for another."""
SLOW_MAX = 56
"""Slow writes at once; further ones keep their slots."""
READS_MAX = 8
"""Live reads at once. With all writes and watches they stay below the client's connections (kubeapi.py)."""
READS_OF_ONE_MAX = 4
"""Of one namespace, or of objects without one."""
RETRY_AFTER_S_MAX = 30.0
"""A longer wait that a server or a proxy asks for would leave broken gangs as they are."""

log = structlog.get_logger(__name__)


class Urgency(IntEnum):
    """Lower goes first."""

    ACT = 0
    ALARM = 1
    """About many nodes at once: people must know of it soon."""
    REPORT = 2
    UPKEEP = 3
    """May be a write for each node at once, and no decision waits for it."""


def is_overload(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.status in (429, 503)


class _Held:
    """One write's slot."""

    is_slow = False


class Limiter:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._slots = SLOTS_MAX
        self._in_flight = 0
        self._slow = 0
        """Writes that have given their slots back, and are not answered yet."""
        self._waiting: list[tuple[Urgency, int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._reading: Counter[str] = Counter()
        """Reads under way, by namespace."""
        self._to_read: dict[str, deque[asyncio.Future[None]]] = {}
        """Reads that wait, by namespace. The namespace whose turn is next stands first."""
        self._good = 0
        """Writes that went well since the number of slots changed."""
        self._halvings = 0
        self._pause: asyncio.TimerHandle | None = None
        """Ends what the API server has asked for."""

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def in_flight(self) -> int:
        return self._in_flight + self._slow + self._reading.total()

    def waiting(self) -> Counter[Urgency]:
        """Reads count as acts, since acts wait for them."""
        found = Counter(urgency for urgency, *_, turn in self._waiting if not turn.done())
        reads = sum(not turn.done() for turns in self._to_read.values() for turn in turns)
        return found + Counter({Urgency.ACT: reads})

    @asynccontextmanager
    async def slot(self, urgency: Urgency, order: int = 0) -> AsyncIterator[None]:
        """Holds a slot for one write, and learns from how it ends. Of one urgency the lowest order goes
        first, then who came first."""
        await self._take(urgency, order)
        held = _Held()
        making_room = asyncio.get_running_loop().call_later(SLOW_S, self._make_room, held)
        try:
            with self._learning():
                yield
        finally:
            making_room.cancel()
            if held.is_slow:
                self._slow -= 1
            else:
                self._in_flight -= 1
                self._let_in()

    @asynccontextmanager
    async def read(self, namespace: str) -> AsyncIterator[None]:
        """Holds a place for one live read, and learns from how it ends. Namespaces have their turns, and who
        came first within each."""
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
        if self._slow < SLOW_MAX:
            held.is_slow = True
            self._slow += 1
            self._in_flight -= 1
            self._let_in()

    async def _take(self, urgency: Urgency, order: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, order, next(self._numbers), turn))
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # let in and cancelled in the same moment: the slot goes to the next
                self._in_flight -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self._in_flight < self._slots and self._pause is None:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.cancelled():
                self._in_flight += 1
                turn.set_result(None)

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
        """Several refusals of one moment halve once: all but the first began under the larger number."""
        self._metrics.writes_throttled.inc()
        if error.retry_after_s:
            self._wait(min(error.retry_after_s, RETRY_AFTER_S_MAX))
        if began_in == self._halvings:
            self._halvings += 1
            self._good, self._slots = 0, max(1, self._slots // 2)
            log.warning("API server overloaded, fewer writes at once", slots=self._slots, why=str(error))

    def _wait(self, wait_s: float) -> None:
        """Lets nobody in for so long; a longer wait that is under way stays."""
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
