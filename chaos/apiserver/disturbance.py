"""Faults between one client and the simulated API server, as tests set them. client.py calls this module
before each request, after each write, and during watches."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource

__all__ = ["ON_PURPOSE", "Disturbance", "StandingRefusal"]

ON_PURPOSE = "refused on purpose"
"""Text in every refusal of this module, by which a refusal is distinguished from a defect."""

_REASONS = {403: "Forbidden", 409: "Conflict", 429: "TooManyRequests", 503: "ServiceUnavailable"}


class StandingRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Refusal of writes while it is in the list `standing`, as by an admission webhook or a quota. It matches
    one verb on the objects of one kind whose name contains `name`, in `namespace` or in all namespaces."""

    why: str
    verb: str
    resource: Resource
    name: str = ""
    namespace: str = ""
    status: int = 403

    def matches(self, verb: str, resource: Resource, namespace: str, name: str) -> bool:
        return (
            (self.verb, self.resource) == (verb, resource)
            and self.name in name
            and self.namespace in ("", namespace)
        )


class Disturbance:
    """Tests set the fields at any time.

    refuse_with    statuses for the next requests, one each; nothing is applied
    standing       refusals for certain objects, until they are removed
    refused        number of refused requests, by `why` or status
    lose_replies   number of the next writes that are applied while their replies are lost
    delay_s        delay of each request
    watch_lag_s    delay of watch events
    lag_of_s       delay of watch events of one kind, if that is longer
    """

    def __init__(self) -> None:
        self.refuse_with: deque[int] = deque()
        self.standing: list[StandingRefusal] = []
        self.refused: Counter[str] = Counter()
        self.lose_replies = 0
        self.delay_s = 0.0
        self.watch_lag_s = 0.0
        self.lag_of_s: dict[Resource, float] = {}
        self.partitioned = False
        self.watch_era = 0
        self._watches: dict[object, Callable[[], None]] = {}

    def partition(self) -> None:
        """Cuts the connection: from now on no request reaches the server, and watches send nothing."""
        self.partitioned = True

    def heal(self) -> None:
        self.partitioned = False
        self._wake()

    def drop_watches(self) -> None:
        """Breaks all open watches of this client."""
        self.watch_era += 1
        self._wake()

    async def before(self, what: str) -> None:
        """Applies the disturbances of the way to the server. Raises ReplyLost or ApiError, as set."""
        await asyncio.sleep(self.delay_s)
        if self.partitioned:
            raise ReplyLost(f"{what}: no route to the API server")
        is_read = what.startswith(("GET", "LIST", "WATCH"))
        if self.refuse_with and not (is_read and self.refuse_with[0] == 409):  # nothing conflicts with a read
            status = self.refuse_with.popleft()
            raise self._refusal(status, "", f"status {status}")

    def admit(self, verb: str, resource: Resource, namespace: str, name: str) -> None:
        """Raises ApiError if a standing refusal matches this write."""
        for refusal in self.standing:
            if refusal.matches(verb, resource, namespace, name):
                raise self._refusal(refusal.status, refusal.why, refusal.why)

    def _refusal(self, status: int, message: str, counted_as: str) -> ApiError:
        self.refused[counted_as] += 1
        words = f"{message}: {ON_PURPOSE}" if message else ON_PURPOSE
        return ApiError(status, _REASONS.get(status, "InternalError"), words, 1.0 if status == 429 else None)

    def lag_s(self, resource: Resource) -> float:
        """Returns the delay of watch events of that kind in seconds."""
        return max(self.watch_lag_s, self.lag_of_s.get(resource, 0.0))

    def after_write(self, what: str) -> None:
        """Applies the disturbances of the way back. Raises ReplyLost, as set."""
        if self.partitioned or self.lose_replies > 0:
            self.lose_replies = max(0, self.lose_replies - 1)
            raise ReplyLost(f"{what}: the answer was lost")

    def subscribe(self, watch: object, wake: Callable[[], None]) -> None:
        self._watches[watch] = wake

    def unsubscribe(self, watch: object) -> None:
        self._watches.pop(watch, None)

    def _wake(self) -> None:
        for wake in tuple(self._watches.values()):
            wake()
