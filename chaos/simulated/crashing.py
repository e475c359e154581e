"""The controller's connection to the API, with a place before and after each write where the controller may
die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chaos.apiserver.client import Client
from recover.kube.through import WritesThrough

__all__ = ["CrashPoints"]

T = TypeVar("T")


class CrashPoints(WritesThrough):
    """Implements recover.kube.cluster.Cluster. `kill` ends the controller, and with it the caller.

    `crash_in` counts down places: with 1 the controller dies at the next place, and with None it never dies.
    A write has two places: before the write is sent, and after it was applied but not answered. `down_s` is
    the time in seconds until the next controller starts; None leaves that to the story.
    """

    def __init__(self, client: Client, kill: Callable[[], None]) -> None:
        super().__init__(client)
        self.crash_in: int | None = None
        self.down_s: float | None = None
        self._kill = kill

    async def _write(self, write: Coroutine[Any, Any, T]) -> T:
        try:
            await self._place()
            answer = await write
        finally:
            write.close()
        await self._place()
        return answer

    async def _place(self) -> None:
        if self.crash_in is None:
            return
        self.crash_in -= 1
        if self.crash_in == 0:
            self.crash_in = None
            self._kill()
            await asyncio.Event().wait()  # the process is gone: every caller that waits here is cancelled
