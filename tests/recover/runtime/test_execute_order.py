"""Tests the order of writes, and what delays all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.api import Act
from recover.api.marks import UNHEALTHY
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES, RECIPES
from recover.model.actions import Create, Patch, Plan
from recover.policy.settings import Settings
from recover.runtime.execute import Executor
from recover.runtime.limiter import SLOTS_MAX
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from recover.triage.held_back_incidents import ALARMS
from tests.recover.runtime.executing import START, execute, patch
from tests.recover.scripted import Scripted


class Slow(Scripted):
    """Lets each write take a while, so that other writes wait for their turn."""

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        answer = await super().create(resource, body, namespace, strict=strict)
        await asyncio.sleep(0.01)
        return answer

    async def patch(self, resource: Resource, *args: Any, **kwargs: Any) -> bytes:
        answer = await super().patch(resource, *args, **kwargs)
        await asyncio.sleep(0.01)
        return answer


def report(name: str) -> Create:
    return Create(what="c", resource=INCIDENTS, name=name, body={"metadata": {"name": name}})


def test_what_stops_a_gang_overtakes_the_reports_of_others() -> None:
    cluster = Slow()

    execute(cluster, *[(report("i"),)] * 20, (patch("act"),))

    assert cluster.calls.index(("patch", "act")) == SLOTS_MAX / 2


@pytest.mark.parametrize("resource", [NODEHEALTHS, RECIPES])
def test_a_report_goes_before_what_all_nodes_or_people_are_told(resource: Resource) -> None:
    """A change of one recipe is a write for each node, and triage begins its next pass once its own writes
    are done."""
    cluster = Slow()
    told = Create(what="w", resource=resource, name="n", body={"metadata": {"name": "n"}})

    execute(cluster, *[(told,)] * 20, (report("i"),))

    assert cluster.calls.index(("create", "i")) == SLOTS_MAX / 2


@pytest.mark.parametrize("what", sorted(ALARMS))
def test_people_learn_of_a_fault_of_many_nodes_before_they_learn_of_each(what: str) -> None:
    cluster = Slow()
    alarm = msgspec.structs.replace(report("many"), what=what)

    execute(cluster, *[(report("i"),)] * 20, (alarm,))

    assert cluster.calls.index(("create", "many")) == SLOTS_MAX / 2


def test_a_soft_taint_goes_behind_what_stops_a_gang() -> None:
    """A soft taint only tells the scheduler what to prefer, and 300 nodes may get one at the same moment."""
    cluster = Slow()
    taint = {"key": UNHEALTHY, "value": "device-degraded", "effect": "PreferNoSchedule"}
    soft = Patch(
        what=Act.QUARANTINE_NODE, resource=NODES, name="n", uid="u", body={"spec": {"taints": [taint]}}
    )

    execute(cluster, *[(soft,)] * 20, (patch("act"),))

    assert cluster.calls.index(("patch", "act")) == SLOTS_MAX


def test_a_report_that_an_act_waits_for_is_as_urgent_as_the_act() -> None:
    cluster = Slow()

    execute(cluster, *[(report("i"),)] * 20, (report("first"), patch("act")))

    assert cluster.calls.index(("create", "first")) == SLOTS_MAX / 2


def test_a_retry_after_of_the_server_holds_all_writes_back() -> None:
    cluster = Scripted(patch=[ApiError(429, "TooManyRequests", "slow down", 7.0)])

    async def main(clock: Clock) -> float:
        observer = Observer(cluster, Settings(), lambda: None)
        await Executor(cluster, observer, Metrics(), clock).run(Plan(chains=((patch(),),)))
        return (clock.now() - START).total_seconds()

    assert run(main, start=START) >= 7.0
    assert cluster.calls == [("patch", "r1")] * 2
