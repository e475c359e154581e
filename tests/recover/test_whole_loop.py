"""The loop that looks at the whole world: how it ends."""

from __future__ import annotations

import asyncio

from recover.actions import Plan
from recover.execute import Executor
from recover.loops.whole import WholeWorld
from recover.mode import ModeKeeper
from recover.observe import Observer
from recover.settings import Settings
from recover.telemetry import Metrics, WallClock
from tests.recover.scripted import Scripted


async def test_a_loop_that_is_cancelled_in_the_moment_of_a_change_ends() -> None:
    """One that went on would look, and write, beside the controller that follows."""
    clock, cluster, metrics = WallClock(), Scripted(), Metrics()
    observer = Observer(cluster, Settings(), lambda: None)
    executor = Executor(cluster, observer, metrics, clock)
    modes = ModeKeeper(cluster, observer, Settings(), clock)
    loop = WholeWorld("x", lambda _, __: Plan(look_again_s=60.0), observer, executor, modes, metrics, clock)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0.05)

    loop.wake()
    running.cancel()

    done, _ = await asyncio.wait({running}, timeout=2.0)
    assert done == {running}
