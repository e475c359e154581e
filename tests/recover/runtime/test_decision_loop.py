"""Tests the loop that decides over the whole world: what it reports, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from detectors.client.kubeapi import ApiError
from recover.k8s.bodies import regarding
from recover.k8s.kinds import NODES
from recover.kube.clock import WallClock
from recover.model import World
from recover.model.actions import Action, Failure, Patch, Plan
from recover.policy.settings import Settings
from recover.runtime.decision_loop import PAUSE_S, DecisionLoop
from recover.runtime.execute import Executor
from recover.runtime.loop_parts import LoopParts
from recover.runtime.mode_keeper import ModeKeeper
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from recover.runtime.writing import LEFT_OUT_AGAIN_S, Writing
from tests.recover.scripted import Scripted, quarantine


def loop(
    decide: Callable[[World, datetime], Plan],
    cluster: Scripted,
    metrics: Metrics,
    *,
    waits_for_writes: bool = False,
) -> DecisionLoop:
    clock = WallClock()
    observer = Observer(cluster, Settings(), lambda: None)
    executor = Executor(cluster, observer, metrics, clock)
    modes = ModeKeeper(cluster, observer, Settings(), clock)
    parts = LoopParts(observer, executor, modes, metrics, clock)
    return DecisionLoop("x", decide, parts, waits_for_writes=waits_for_writes)


async def test_what_cannot_be_judged_is_counted_at_each_look_and_told_on_its_object_once() -> None:
    cluster, metrics = Scripted(), Metrics()
    failure = Failure(about=regarding("v1", "Node", "n5", "n5-uid"), error=OverflowError("a secret"))
    looks = 0

    def decide(_world: World, _now: datetime) -> Plan:
        nonlocal looks
        looks += 1
        return Plan(requeue_after_s=0.01, failures=(failure,))

    running = asyncio.create_task(loop(decide, cluster, metrics).run())
    while looks < 3:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})

    (event,) = cluster.bodies
    assert (event["reason"], event["regarding"]["name"]) == ("NotJudged", "n5")
    assert "OverflowError" in event["note"]
    assert "a secret" not in event["note"]
    assert (metrics.registry.get_sample_value("rekindle_loop_errors_total", {"loop": "x"}) or 0) >= 2


async def test_a_look_knows_the_quarantines_that_are_still_being_written() -> None:
    """Otherwise two passes in a row would both take the last place of a budget."""
    cluster, answered = Scripted(), asyncio.Event()
    answers, known = cluster.patch, []

    async def patch(*asked: Any, **options: Any) -> bytes:
        await answered.wait()
        return await answers(*asked, **options)

    def decide(world: World, _now: datetime) -> Plan:
        known.append(set(world.being_quarantined))
        return Plan(chains=((quarantine("NoSchedule"),),) if len(known) == 1 else (), requeue_after_s=0.01)

    cluster.patch = patch  # type: ignore[method-assign]
    running = asyncio.create_task(loop(decide, cluster, Metrics()).run())
    while len(known) < 3:
        await asyncio.sleep(0.01)
    assert known[:3] == [set(), {"n1"}, {"n1"}]
    answered.set()
    while known[-1]:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})


async def test_a_loop_that_is_cancelled_in_the_moment_of_a_change_ends() -> None:
    """A loop that continued would decide, and write, at the same time as the controller that follows."""
    waiting = loop(lambda _, __: Plan(requeue_after_s=60.0), Scripted(), Metrics())
    running = asyncio.create_task(waiting.run())
    await asyncio.sleep(0.05)

    waiting.wake()
    running.cancel()

    done, _ = await asyncio.wait({running}, timeout=30)
    assert done == {running}


def write(node: str) -> tuple[Action, ...]:
    return (Patch(what="w", resource=NODES, name=node, body={}),)


class Slow(Scripted):
    """Answers writes to `n1` when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    async def patch(self, resource: Any, name: str, *args: Any, **options: Any) -> bytes:
        self.calls.append(("patch", name))
        if name == "n1":
            await self.answer.wait()
        return await super().patch(resource, name, *args, **options)

    def begun(self, name: str) -> int:
        """Returns how many writes to this object have begun. Answered writes count twice."""
        return self.calls.count(("patch", name))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("waits_for_writes", [False, True])
async def test_a_slow_write_delays_no_other_object_and_is_not_begun_twice(waits_for_writes: bool) -> None:
    """Loops other than triage count only the objects in the caches, so they wait for their writes."""
    cluster, looks = Slow(), 0
    wanted = [write("n1")]

    def decide(_world: World, _now: datetime) -> Plan:
        nonlocal looks
        looks += 1
        return Plan(chains=tuple(wanted))

    tested = loop(decide, cluster, Metrics(), waits_for_writes=waits_for_writes)
    running = asyncio.create_task(tested.run())
    await until(lambda: cluster.begun("n1") == 1)
    wanted.append(write("n2"))
    tested.wake()
    await asyncio.sleep(0.3)

    assert cluster.begun("n2") == (0 if waits_for_writes else 2), "begun and answered"
    assert cluster.begun("n1") == 1
    before = looks
    cluster.answer.set()
    await until(lambda: looks > before)  # a later pass decides what was left out

    running.cancel()
    await asyncio.wait({running})


async def test_a_storm_of_changes_while_a_write_is_slow_is_no_storm_of_looks() -> None:
    cluster, looks = Slow(), 0

    def decide(_world: World, _now: datetime) -> Plan:
        nonlocal looks
        looks += 1
        return Plan(chains=(write("n1"),))

    tested = loop(decide, cluster, Metrics())
    running = asyncio.create_task(tested.run())
    began = time.monotonic()
    for _ in range(100):
        tested.wake()
        await asyncio.sleep(0.005)
    took_s = time.monotonic() - began  # more than 0.5 s if the machine is busy
    running.cancel()
    await asyncio.wait({running})

    assert 2 <= looks <= 2 + took_s / PAUSE_S


async def test_writes_in_flight_end_with_their_loop() -> None:
    cluster = Slow()
    running = asyncio.create_task(loop(lambda _, __: Plan(chains=(write("n1"),)), cluster, Metrics()).run())
    await until(lambda: cluster.begun("n1") == 1)

    running.cancel()
    await asyncio.wait({running}, timeout=30)
    cluster.answer.set()
    await asyncio.sleep(0.05)

    assert running.done()
    assert cluster.begun("n1") == 1, "it was never answered"


async def test_a_defect_in_one_write_is_counted_and_all_others_are_made() -> None:
    class Defective(Scripted):
        async def patch(self, resource: Any, name: str, *args: Any, **options: Any) -> bytes:
            if name == "n1":
                raise KeyError("a defect")
            return await super().patch(resource, name, *args, **options)

    cluster, metrics = Defective(), Metrics()
    plan = Plan(chains=(write("n1"), write("n2")))
    running = asyncio.create_task(loop(lambda _, __: plan, cluster, metrics).run())
    await until(lambda: ("patch", "n2") in cluster.calls)
    running.cancel()
    await asyncio.wait({running})

    assert metrics.registry.get_sample_value("rekindle_loop_errors_total", {"loop": "x"}) == 1


async def test_a_refused_write_is_tried_again_after_its_pause_and_not_at_each_change() -> None:
    cluster = Scripted(patch=[ApiError(403, "Forbidden", "denied by a policy")] * 9)
    tested = loop(lambda _, __: Plan(chains=(write("n1"),)), cluster, Metrics())
    running = asyncio.create_task(tested.run())
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.wait({running})

    assert cluster.calls.count(("patch", "n1")) <= 2, "the first refusal is news, and is looked at once"


async def test_what_was_left_out_does_not_share_the_pause_of_a_refused_write() -> None:
    """A node whose soft taint a policy denies may have lost a GPU meanwhile."""
    cluster = Slow()
    cluster.answers["patch"] = [ApiError(403, "Forbidden", "denied by a policy")]
    observer = Observer(cluster, Settings(), lambda: None)
    executor = Executor(cluster, observer, Metrics(), WallClock())
    pauses: list[float] = []
    writing = Writing("x", executor, Metrics(), pauses.append)

    async with asyncio.TaskGroup() as group:
        writing.begin(Plan(chains=(write("n1"),)), group)
        await asyncio.sleep(0)
        writing.begin(Plan(chains=(write("n1"),)), group)
        cluster.answer.set()

    assert pauses == [LEFT_OUT_AGAIN_S]
