"""The only way of the controller's writes to the API: none is sent unless the lease outlasts it.

Reads pass. Loops, executor and mode keeper know nothing of the lease; whatever they write comes through here.
What the API server still does after we have hung up on it is guarded by each write's own precondition.
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
    """Implements Cluster. A write raises NotLeaderError where it was not sent, and ReplyLost where no answer
    came within the lease's `write_timeout_s`."""

    def __init__(self, cluster: Cluster, elector: Elector) -> None:
        super().__init__(cluster)
        self._elector = elector
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self) -> None:
        """No write is sent any more; returns when those under way are answered or given up."""
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
