"""Checks each of the controller's writes against the lease: a write is sent only if the lease outlasts the
write.

Reads pass. Loops, executor and mode keeper know nothing of the lease; all their writes go through this
module. A write that the API server still executes after our connection to it has ended is protected by its
own precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from detectors.client.kubeapi import ReplyLost
from recover.kube.cluster import Cluster
from recover.kube.errors import NotLeaderError
from recover.kube.lease import Elector
from recover.kube.through import WritesThrough

__all__ = ["Fenced"]

T = TypeVar("T")


class Fenced(WritesThrough):
    """Implements Cluster. A write raises NotLeaderError if it was not sent, and ReplyLost if no answer came
    within the lease's `write_timeout_s`."""

    def __init__(self, cluster: Cluster, elector: Elector) -> None:
        super().__init__(cluster)
        self._elector = elector
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self) -> None:
        """Stops sending writes. Returns when the writes in flight are answered or given up."""
        self._closed = True
        await self._idle.wait()

    async def _write(self, write: Coroutine[Any, Any, T]) -> T:
        try:
            if self._closed:
                raise NotLeaderError("this controller is ending")
            self._elector.check()
            self._in_flight += 1
            self._idle.clear()
            try:
                async with asyncio.timeout(self._elector.write_timeout_s):
                    return await write
            except TimeoutError as error:
                raise ReplyLost(f"no answer within {self._elector.write_timeout_s:g} s") from error
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._idle.set()
        finally:
            write.close()
