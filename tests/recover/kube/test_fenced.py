"""Tests that no write is sent that might last longer than the lease; reads are always sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from chaos.apiserver.client import Client
from chaos.apiserver.rest import serve
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.virtual import Clock, real_clock, run
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi, ReplyLost
from recover.k8s.kinds import CONFIGMAPS, LEASES, NAMESPACES, PODS
from recover.kube.errors import NotLeaderError
from recover.kube.fenced import Fenced
from recover.kube.lease import LEASE, Elector
from recover.kube.rest import RestCluster
from recover.policy.settings import Settings

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMESPACE = Settings().namespace
ENVIRONMENT = {"metadata": {"name": "env"}}


class Lab:
    """A leader whose lease nothing renews. The lease lasts 15 s, of which 10 s are for writing."""

    def __init__(self, clock: Clock) -> None:
        self.store = MemoryCluster(clock.now)
        self.store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.store.create(LEASES, {"metadata": {"name": LEASE}}, NAMESPACE)
        self.client = Client(self.store, "controller")
        loop = asyncio.get_running_loop()
        self._elector = Elector(Client(self.store, "elector"), Settings(), "a", clock, loop.time)
        self.fenced = Fenced(self.client, self._elector)

    async def lead(self) -> None:
        electing = asyncio.create_task(self._elector.run())
        await self._elector.leading.wait()
        electing.cancel()


def played(story: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: Clock) -> None:
        await story(Lab(clock))

    run(main, start=START)


WRITES: dict[str, Callable[[Fenced], Awaitable[object]]] = {
    "create": lambda fenced: fenced.create(CONFIGMAPS, ENVIRONMENT, NAMESPACE),
    "patch": lambda fenced: fenced.patch(CONFIGMAPS, "there", {"data": {"a": "b"}}, namespace=NAMESPACE),
    "delete": lambda fenced: fenced.delete(CONFIGMAPS, "there", namespace=NAMESPACE),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_each_kind_of_write_is_sent_by_the_leader_alone(write: Callable[[Fenced], Awaitable[object]]) -> None:
    async def story(lab: Lab) -> None:
        lab.store.create(CONFIGMAPS, {"metadata": {"name": "there"}}, NAMESPACE)
        with pytest.raises(NotLeaderError):
            await write(lab.fenced)
        assert lab.store.audit == []

        await lab.lead()
        await write(lab.fenced)
        assert lab.store.audit[-1].changed

        await asyncio.sleep(10)
        written = len(lab.store.audit)
        with pytest.raises(NotLeaderError):
            await write(lab.fenced)
        assert len(lab.store.audit) == written

    played(story)


def test_one_that_stands_by_reads_and_watches() -> None:
    async def story(lab: Lab) -> None:
        await lab.fenced.get(LEASES, LEASE, NAMESPACE)
        page = await lab.fenced.list(PODS)
        events = lab.fenced.watch(PODS, resource_version=page.resource_version, timeout_s=1)
        assert [event async for event in events] == []

    played(story)


def test_a_write_that_is_not_answered_in_time_is_given_up_before_another_may_lead() -> None:
    async def story(lab: Lab) -> None:
        await lab.lead()
        await asyncio.sleep(9.9)
        lab.client.disturbance.delay_s = 3600
        with pytest.raises(ReplyLost):
            await WRITES["create"](lab.fenced)
        assert asyncio.get_running_loop().time() <= 15

    played(story)


def test_at_the_end_the_writes_under_way_are_answered_first_and_no_new_one_is_sent() -> None:
    async def story(lab: Lab) -> None:
        await lab.lead()
        lab.client.disturbance.delay_s = 2
        writing = asyncio.ensure_future(WRITES["create"](lab.fenced))
        await asyncio.sleep(0)

        closing = asyncio.create_task(lab.fenced.close())
        await asyncio.sleep(1)
        with pytest.raises(NotLeaderError):
            await WRITES["create"](lab.fenced)
        assert not closing.done()
        await closing
        assert writing.done()

    played(story)


async def test_a_request_whose_turn_comes_too_late_is_not_sent_although_it_was_begun_in_time() -> None:
    """The last check takes place when the body is sent, after all waiting for a connection."""
    store = MemoryCluster(real_clock().now)
    allowed = True

    def may_send() -> None:
        if not allowed:
            raise NotLeaderError("too late")

    async with serve(store) as up, KubeApi(Credentials(up.url), may_send=may_send) as api:
        cluster = RestCluster(api)
        await cluster.create(NAMESPACES, {"metadata": {"name": "in-time"}})
        allowed = False
        for _ in range(2):  # first over the existing connection, then over a new one
            with pytest.raises(ReplyLost):
                await cluster.create(NAMESPACES, {"metadata": {"name": "late"}})
        await cluster.get(NAMESPACES, "in-time")

    assert [entry.name for entry in store.audit] == ["in-time"]
