"""Virtual time: sleeping costs nothing, the order is fixed, and waiting without end is an error."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from chaos.cluster.virtual import Clock, DeadlockError, run

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


def test_a_month_passes_in_no_time_and_the_clock_shows_it() -> None:
    async def main(clock: Clock) -> datetime:
        await asyncio.sleep(31 * 86_400)
        return clock.now()

    began = time.monotonic()
    assert run(main, start=START) == datetime(2026, 12, 22, 9, tzinfo=UTC)
    assert time.monotonic() - began < 20


def test_sleepers_wake_in_the_order_of_their_times() -> None:
    async def main(clock: Clock) -> list[str]:
        woken: list[str] = []

        async def sleeper(name: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            woken.append(name)

        async with asyncio.TaskGroup() as group:
            for name, delay_s in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0)):
                group.create_task(sleeper(name, delay_s))
        return woken

    assert run(main, start=START) == ["a", "a2", "b", "c"]


def test_waiting_for_what_cannot_happen_is_reported() -> None:
    async def main(clock: Clock) -> None:
        await asyncio.sleep(5)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match=r"after 5\.000 s"):
        run(main, start=START)


def test_timeouts_count_virtual_seconds() -> None:
    async def main(clock: Clock) -> datetime:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.sleep(1_000)
        return clock.now()

    assert run(main, start=START) == datetime(2026, 11, 21, 9, 1, 30, tzinfo=UTC)
