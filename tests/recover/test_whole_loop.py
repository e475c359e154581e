"""The loop that looks at the whole world: what it tells, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from recover.actions import Failure, Plan
from recover.execute import Executor
from recover.loops.whole import WholeWorld
from recover.mode import ModeKeeper
from recover.model import World
from recover.objects import regarding
from recover.observe import Observer
from recover.settings import Settings
from recover.telemetry import Metrics, WallClock
from tests.recover.scripted import Scripted


def loop(decide: Callable[[World, datetime], Plan], cluster: Scripted, metrics: Metrics) -> WholeWorld:
    clock = WallClock()
    observer = Observer(cluster, Settings(), lambda: None)
    executor = Executor(cluster, observer, metrics, clock)
    return WholeWorld(
        "x", decide, observer, executor, ModeKeeper(cluster, observer, Settings(), clock), metrics, clock
    )


async def test_what_cannot_be_judged_is_counted_at_each_look_and_told_on_its_object_once() -> None:
    cluster, metrics = Scripted(), Metrics()
    failure = Failure(about=regarding("v1", "Node", "n5", "n5-uid"), error=OverflowError("a secret"))
    looks = 0

    def decide(_world: World, _now: datetime) -> Plan:
        nonlocal looks
        looks += 1
        return Plan(look_again_s=0.01, failures=(failure,))

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


async def test_a_loop_that_is_cancelled_in_the_moment_of_a_change_ends() -> None:
    """One that went on would look, and write, beside the controller that follows."""
    waiting = loop(lambda _, __: Plan(look_again_s=60.0), Scripted(), Metrics())
    running = asyncio.create_task(waiting.run())
    await asyncio.sleep(0.05)

    waiting.wake()
    running.cancel()

    done, _ = await asyncio.wait({running}, timeout=30)
    assert done == {running}
