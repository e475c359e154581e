"""What goes wrong between one client and the simulated API server, as tests want it. client.py asks here
before each request, after each write, and while it watches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from detectors.kubeapi import ApiError, ReplyLost

__all__ = ["Disturbance"]

_REASONS = {403: "Forbidden", 409: "Conflict", 429: "TooManyRequests", 503: "ServiceUnavailable"}


class Disturbance:
    """Tests set the fields at any time.

    refuse_with    statuses for the next requests, one each; nothing is applied
    lose_replies   how many of the next writes are applied while their answers are lost
    delay_s        each request arrives this late
    watch_lag_s    watch events arrive this late
    """

    def __init__(self) -> None:
        self.refuse_with: deque[int] = deque()
        self.lose_replies = 0
        self.delay_s = 0.0
        self.watch_lag_s = 0.0
        self.partitioned = False
        self.watch_era = 0
        self._watches: dict[object, Callable[[], None]] = {}

    def partition(self) -> None:
        """From now on nothing reaches the server, and watches say nothing."""
        self.partitioned = True

    def heal(self) -> None:
        self.partitioned = False
        self._wake()

    def drop_watches(self) -> None:
        """Breaks all open watches of this client."""
        self.watch_era += 1
        self._wake()

    async def before(self, what: str) -> None:
        """The way to the server. Raises ReplyLost or ApiError, as set."""
        await asyncio.sleep(self.delay_s)
        if self.partitioned:
            raise ReplyLost(f"{what}: no route to the API server")
        if self.refuse_with:
            status = self.refuse_with.popleft()
            reason = _REASONS.get(status, "InternalError")
            raise ApiError(status, reason, "refused on purpose", 1.0 if status == 429 else None)

    def after_write(self, what: str) -> None:
        """The way back. Raises ReplyLost, as set."""
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
