"""Tests a standby controller: it is ready and has read all objects, and it writes nothing until it leads."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp

from chaos.apiserver.client import Client
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.virtual import Clock, real_clock, run
from detectors.wire.contract import Fault
from detectors.wire.fitting import fitted
from recover.api import IncidentSpec
from recover.k8s.bodies import body
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, JOBS, NAMESPACES, NODEHEALTHS, NODES
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Retention, Settings
from recover.runtime.controller import Controller
from recover.runtime.mode_keeper import STATE
from recover.runtime.telemetry import Metrics
from recover.runtime.web import serve

NAMESPACE = Settings().namespace
NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}

RANK = {"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
JOB = {
    "metadata": {"name": "llm", "namespace": NAMESPACE},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [RANK]}}},
}


class Lab:
    """A controller that does not lead yet, in a cluster with one GPU node that has no NodeHealth."""

    def __init__(self, url: str, store: MemoryCluster, client: Client, controller: Controller) -> None:
        self.store = store
        self.client = client
        self.controller = controller
        self._url = url

    async def asked(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self._url + path) as answer:
            return answer.status, await answer.text()

    async def until_there(self) -> None:
        """Waits for the NodeHealth, which is the first object that a leader writes here."""
        async with asyncio.timeout(20):
            while not self.store.objects(NODEHEALTHS):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def standing_by() -> AsyncIterator[Lab]:
    clock = real_clock()
    store = MemoryCluster(clock.now)
    store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    store.create(NODES, NODE)
    client = Client(store, "controller")
    controller = Controller(client, Settings(), Metrics(), clock, asyncio.Event())
    runner = await serve(controller, "127.0.0.1", 0)
    working = asyncio.create_task(controller.run())
    try:
        yield Lab(f"http://127.0.0.1:{runner.addresses[0][1]}", store, client, controller)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await runner.cleanup()


async def test_it_is_ready_says_that_it_stands_by_and_writes_nothing() -> None:
    async with standing_by() as lab:
        await asyncio.wait_for(lab.controller.ready.wait(), 20)
        await asyncio.sleep(0.2)

        status, said = await lab.asked("/readyz")
        assert (status, "leading" in said) == (200, False)
        assert "rekindle_leader 0.0" in (await lab.asked("/metrics"))[1]
        assert "n1" in lab.controller.observer.nodes.rows
        assert lab.store.audit == []


async def test_as_soon_as_it_leads_it_works_and_says_so() -> None:
    async with standing_by() as lab:
        await asyncio.wait_for(lab.controller.ready.wait(), 20)

        lab.controller.leading.set()
        await lab.until_there()

        assert lab.store.read(CONFIGMAPS, STATE, NAMESPACE)
        status, said = await lab.asked("/readyz")
        assert (status, "leading" in said) == (200, True)
        assert "rekindle_leader 1.0" in (await lab.asked("/metrics"))[1]


async def test_before_its_first_decision_it_reads_what_the_last_leader_wrote() -> None:
    """The controller's watches may lag, here by an hour."""
    async with standing_by() as lab:
        await asyncio.wait_for(lab.controller.ready.wait(), 20)
        lab.client.disturbance.watch_lag_s = 3600
        lab.store.create(NODES, {**NODE, "metadata": {"name": "n2"}})
        lab.store.create(JOBS, JOB)
        await asyncio.sleep(0.2)
        assert "n2" not in lab.controller.observer.nodes.rows

        lab.controller.leading.set()
        await lab.until_there()

        assert {"n1", "n2"} == {o["metadata"]["name"] for o in lab.store.objects(NODEHEALTHS)}
        world = lab.controller.observer.world(Modes(begun(Mode.OBSERVE, real_clock().now())))
        assert [gang.ref.name for gang in world.gangs.values()] == ["llm"]


def test_a_storm_that_begins_after_a_quiet_hour_does_not_pass_the_cap() -> None:
    """The search for old objects runs once an hour if there are few."""

    async def main(clock: Clock) -> int:
        store, leading = MemoryCluster(clock.now), asyncio.Event()
        store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        leading.set()
        settings = Settings(retention=Retention(objects_max=4))
        controller = Controller(Client(store, "controller"), settings, Metrics(), clock, leading)
        working = asyncio.create_task(controller.run())
        await asyncio.sleep(100)
        at = clock.now().isoformat()
        for number in range(12):
            spec = fitted(IncidentSpec, fault=Fault.DEVICE_LOST, node=f"n{number}", detected_at=clock.now())
            store.create(INCIDENTS, body(INCIDENTS, f"i{number}", spec=spec))
            status = {"phase": "Closed", "closedAt": at}
            store.patch(INCIDENTS, f"i{number}", {"status": status}, subresource="status")
        await asyncio.sleep(60)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return len(store.objects(INCIDENTS))

    assert run(main, start=datetime(2026, 11, 21, tzinfo=UTC)) <= 4


def test_the_garbage_of_hours_without_an_api_server_is_collected() -> None:
    """Each attempt leaves 13 KiB of garbage, which added up to 100 MiB an hour."""

    async def main(clock: Clock) -> None:
        client = Client(MemoryCluster(clock.now), "controller")
        client.disturbance.partition()
        working = asyncio.create_task(Controller(client, Settings(), Metrics(), clock, asyncio.Event()).run())
        await asyncio.sleep(20)
        assert not gc.isenabled(), "a large sync is not held up"
        await asyncio.sleep(600)
        assert gc.isenabled()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    try:
        run(main, start=datetime(2026, 11, 21, tzinfo=UTC))
    finally:
        gc.enable()
