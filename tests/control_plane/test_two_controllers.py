"""Two controllers with one leader on a real API server. The audit log shows who wrote when.

REKINDLE_HANDOVERS sets how many leaders are stopped past their lease, one after the other (default 1).
REKINDLE_FAILOVER=1 also measures how long the cluster has no leader after a leader is killed, with the
shipped settings (about 20 s). `pytest -s` prints the figures.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from chaos.processes.children import Child
from recover.cli.controller_command import EXIT_LEASE_LOST
from recover.k8s.kinds import INCIDENTS, LEASES
from recover.kube.lease import LEASE
from tests.control_plane.cases import IN_STEP, cordons, indexed_job, recoveries, trained, uids
from tests.control_plane.controllers import SHIPPED_LEASE, start_controller
from tests.control_plane.plane import AUDIT_LAG_S, AuditedWrite, ControlPlane
from tests.control_plane.rights import CONTROLLER_NAME, SYSTEM
from tests.control_plane.stage import LIMIT_S, LONG_LEASE, RealStage, raised

pytestmark = pytest.mark.control_plane

HANDOVERS = int(os.environ.get("REKINDLE_HANDOVERS", "1"))
DURATION_S = 12
SHORT = [f"lease.duration_s={DURATION_S}", "lease.renew_deadline_s=8", "lease.retry_s=0.5"]
WORK = [
    "mode=recover",
    "budgets.quarantined_percent_max=100",
    "budgets.pool_percent_max=100",
    "budgets.quarantines_per_hour_max=1000",
    "budgets.brake_percent=100",
    "budgets.brake_nodes_min=1000",
]
"""Settings by which a burst of faults is handled at once, so that the leader has much to write."""
BURST = 8
"""Number of nodes that break together."""
SPARE = 2
STARTS, STANDS_BY = '"server":', '"its_duration_s":'
"""Fields of the log lines by which a controller reports that it starts, and whose lease it awaits."""
SECOND = "second"


class Contender:
    """One of the two controller processes. The audit log identifies it by its user agent."""

    def __init__(self, process: Child, identity: str) -> None:
        self.process = process
        self.identity = identity

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    async def ended(self) -> int:
        async with asyncio.timeout(LIMIT_S):
            return await self.process.process.wait()

    def wrote(self, write: AuditedWrite) -> bool:
        return write.succeeded and write.user_agent == f"rekindle-controller/{self.identity}"


async def leader_is(stage: RealStage, contender: Contender) -> None:
    async def leads() -> bool:
        lease = await stage.get(LEASES, LEASE, SYSTEM)
        return bool(lease["spec"]["holderIdentity"] == contender.identity)

    await stage.until(f"{contender.identity} leading", leads)


async def stands_by(stage: RealStage, contender: Contender) -> None:
    async def told() -> bool:
        log = contender.process.log.read_text(encoding="utf-8").rpartition(STARTS)[2]
        return STANDS_BY in log and IN_STEP in log

    await stage.until(f"{contender.identity} standing by", told)


def renewals(writes: list[AuditedWrite], contender: Contender) -> list[datetime]:
    """Returns when the API server received each successful renewal of the lease."""
    return [
        write.request_received_timestamp
        for write in writes
        if contender.wrote(write) and write.object_ref.resource == LEASES.plural
    ]


def works(writes: list[AuditedWrite], contender: Contender) -> list[AuditedWrite]:
    return [w for w in writes if contender.wrote(w) and w.object_ref.resource != LEASES.plural]


async def test_a_leader_stopped_past_its_lease_writes_nothing_afterwards_and_the_other_finishes_its_work(
    control_plane: ControlPlane,
) -> None:
    plane, settings = control_plane, [*WORK, *SHORT]
    async with raised(plane, nodes=SPARE + BURST * HANDOVERS, settings=settings, agents=0) as stage:
        old = await trained(stage, indexed_job("llm"))
        leader = Contender(stage.controller, CONTROLLER_NAME)
        other = await started(stage, plane, settings, SECOND)
        broken: set[str] = set()
        try:
            for number in range(1, HANDOVERS + 1):
                await stands_by(stage, other)
                since = plane.audit_position()
                bad = a_burst(old, broken)
                broken |= bad

                await asyncio.gather(
                    stopped_at_work(plane, since, leader), *(stage.xid_79(node) for node in bad)
                )
                stage.controller = other.process  # a failure prints the log of this one
                old = await restarted(stage, old, number)
                await all_dealt_with(stage, broken)
                leader.go_on()

                assert await leader.ended() == EXIT_LEASE_LOST
                await nothing_written_late(plane, since, number, leader, other)
                again = await started(stage, plane, settings, leader.identity)
                leader, other = other, again
        finally:
            for contender in (leader, other):
                if contender.process.alive:
                    contender.go_on()
            await asyncio.gather(leader.process.stop(), other.process.stop())


async def started(stage: RealStage, plane: ControlPlane, settings: list[str], identity: str) -> Contender:
    return Contender(await start_controller(stage.api, plane, settings, identity), identity)


def a_burst(pods: list[Any], broken: set[str]) -> set[str]:
    """Returns nodes that are still healthy: one of the gang's nodes, and others that the gang does not
    use."""
    used = {pod["spec"]["nodeName"] for pod in pods}
    free = {f"n{n}" for n in range(1, SPARE + BURST * HANDOVERS + 1)} - broken - used
    return {min(used), *sorted(free)[: BURST - 1]}


async def stopped_at_work(plane: ControlPlane, since: int, leader: Contender) -> None:
    """Stops the leader soon after its first write, while it has much to write, at a random moment that no
    test can choose better."""
    async with asyncio.timeout(LIMIT_S):
        while not works(plane.audited(since), leader):
            await asyncio.sleep(0.01)
    await asyncio.sleep(random.uniform(0.0, 0.2))
    leader.stop()


async def restarted(stage: RealStage, old: list[Any], number: int) -> list[Any]:
    new = await stage.running("llm", 2, but=uids(old))
    for pod in new:
        await stage.steps(pod, first=100 * number + 1, last=100 * number + 100)

    async def succeeded() -> bool:
        found = await recoveries(stage, "llm")
        return len(found) == number and all(r["status"]["phase"] == "Succeeded" for r in found)

    await stage.until(f"recovery {number} Succeeded", succeeded)
    return new


async def all_dealt_with(stage: RealStage, broken: set[str]) -> None:
    """Waits until each broken node is cordoned, no other node is, and each has one Incident."""

    async def done() -> bool:
        incidents = sorted(i["spec"]["node"] for i in await stage.all(INCIDENTS))
        return await cordons(stage) == broken and incidents == sorted(broken)

    await stage.until("all faults dealt with", done)


async def nothing_written_late(
    plane: ControlPlane, since: int, number: int, stopped: Contender, other: Contender
) -> None:
    """Asserts by the API server's clock that the stopped leader wrote nothing after its deadline. The API
    server received each renewal after it was sent, so the deadline by which the process itself goes is a
    little earlier."""
    await asyncio.sleep(AUDIT_LAG_S)
    deadline = renewals(plane.audited(), stopped)[-1] + timedelta(seconds=DURATION_S)
    writes = plane.audited(since)
    took_over = renewals(writes, other)[0]
    last = max((w.stage_timestamp for w in works(writes, stopped)), default=None)
    print(
        f"round {number}: {len(works(writes, stopped))} writes of the stopped one{_until(last, deadline)}; "
        f"the other took over {(took_over - deadline).total_seconds():.2f} s after its deadline "
        f"and made {len(works(writes, other))}"
    )
    assert last is None or last <= deadline
    assert took_over > deadline
    assert all(w.request_received_timestamp >= took_over for w in works(writes, other))


def _until(last: datetime | None, deadline: datetime) -> str:
    return "" if last is None else f", the last {(deadline - last).total_seconds():.2f} s before its deadline"


async def test_a_leader_that_is_asked_to_end_hands_over_at_once(control_plane: ControlPlane) -> None:
    """The other controller tries every 2 s, and need not wait for the 60 s of the lease."""
    settings = [*WORK, *LONG_LEASE]
    async with raised(control_plane, nodes=1, settings=settings, agents=0) as stage:
        leader = Contender(stage.controller, CONTROLLER_NAME)
        other = await started(stage, control_plane, settings, SECOND)
        try:
            await stands_by(stage, other)
            began_s = time.monotonic()
            assert await leader.process.stop(grace_s=30) == 0
            ended_s = time.monotonic()
            await leader_is(stage, other)
            led_s = time.monotonic()
            await stage.xid_79("n1")
            await all_dealt_with(stage, {"n1"})
            print(f"SIGTERM to end {ended_s - began_s:.2f} s, to the other leading {led_s - began_s:.2f} s")
            assert led_s - ended_s < 30  # a loaded machine is slow
        finally:
            await other.process.stop()


@pytest.mark.on_request("REKINDLE_FAILOVER")
async def test_a_killed_leader_is_followed_in_twenty_seconds_with_the_shipped_settings(
    control_plane: ControlPlane,
) -> None:
    settings = [*WORK, *SHIPPED_LEASE]
    async with raised(control_plane, nodes=1, settings=settings, agents=0) as stage:
        other = await started(stage, control_plane, settings, SECOND)
        try:
            await stands_by(stage, other)
            await stage.controller.kill()
            killed_s = time.monotonic()
            await stage.xid_79("n1")
            await leader_is(stage, other)
            led_s = time.monotonic()
            await all_dealt_with(stage, {"n1"})
            print(
                f"SIGKILL to the other leading {led_s - killed_s:.2f} s, "
                f"to the cordon of a node that broke meanwhile {time.monotonic() - killed_s:.2f} s"
            )
            assert led_s - killed_s < 20
        finally:
            await other.process.stop()
