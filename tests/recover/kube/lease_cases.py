"""Runs controllers that compete for the lease, and the API server that stores it, in virtual time.

The settings are the shipped ones: 15 s, 10 s, 2 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.virtual import Clock, run
from recover.k8s.kinds import LEASES, NAMESPACES
from recover.kube.errors import NotLeaderError
from recover.kube.lease import LEASE, Elector, LeaseLostError
from recover.policy.settings import Settings

__all__ = ["DURATION_S", "RENEW_DEADLINE_S", "RETRY_S", "Lab", "Process", "Skewed", "now_s", "played"]

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMESPACE = Settings().namespace
DURATION_S, RENEW_DEADLINE_S, RETRY_S = 15.0, 10.0, 2.0


class Skewed:
    """A machine's wall clock that is wrong by a fixed time."""

    def __init__(self, clock: Clock, by: timedelta) -> None:
        self._clock, self._by = clock, by

    def now(self) -> datetime:
        return self._clock.now() + self._by


class Process:
    """One controller's elector, with its own way to the API server. `stopped_s` is added to its uptime."""

    def __init__(self, lab: Lab, identity: str, skew: timedelta = timedelta()) -> None:
        self.client = Client(lab.store, identity)
        self.stopped_s = 0.0
        self.elector = Elector(
            self.client, Settings(), identity, Skewed(lab.clock, skew), lambda: now_s() + self.stopped_s
        )
        self.task = asyncio.create_task(self.elector.run())

    @property
    def leads(self) -> bool:
        return not self.task.done() and self.may_write

    @property
    def may_write(self) -> bool:
        try:
            self.elector.check()
        except NotLeaderError:
            return False
        return True

    async def lost(self, within_s: float) -> str:
        """Returns the reason why the process ended. Fails if it does not end within this time."""
        async with asyncio.timeout(within_s):
            with pytest.raises(LeaseLostError) as error:
                await self.task
        assert not self.may_write
        return str(error.value)

    async def taken(self) -> float:
        """Waits until the process leads. Returns the seconds that this took."""
        began_s = now_s()
        async with asyncio.timeout(300):
            await self.elector.leading.wait()
        return now_s() - began_s

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Lab:
    """An API server that has the Lease, without a holder, as after an installation."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = MemoryCluster(clock.now)
        self.store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.store.create(LEASES, {"metadata": {"name": LEASE}}, NAMESPACE)

    def process(self, identity: str, skew: timedelta = timedelta()) -> Process:
        return Process(self, identity, skew)

    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.store.read(LEASES, LEASE, NAMESPACE).body["spec"]
        return found

    def edit(self, **spec: Any) -> None:
        self.store.patch(LEASES, LEASE, {"spec": spec}, namespace=NAMESPACE)

    def touch(self) -> None:
        """Writes an annotation that no elector reads on the Lease. Does nothing if the Lease is deleted."""
        if self.store.objects(LEASES, NAMESPACE):
            note = {"metadata": {"annotations": {"seen": str(now_s())}}}
            self.store.patch(LEASES, LEASE, note, namespace=NAMESPACE)

    def delete(self) -> None:
        self.store.delete(LEASES, LEASE, Deletion(), NAMESPACE)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def played(story: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: Clock) -> None:
        await story(Lab(clock))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run(main, start=START)
