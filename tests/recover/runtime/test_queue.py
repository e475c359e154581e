"""Tests the queue of keys: no key is missed, and no key is worked on twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from chaos.cluster.virtual import Clock, run
from recover.runtime.queue import KeyedQueue

START = datetime(2026, 11, 21, tzinfo=UTC)


def virtually(story: Callable[[KeyedQueue], Awaitable[None]]) -> None:
    async def main(_: Clock) -> None:
        await story(KeyedQueue())

    run(main, start=START)


async def nothing_waits(queue: KeyedQueue) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 0.001)


def test_a_key_that_is_added_twice_is_taken_once() -> None:
    async def story(queue: KeyedQueue) -> None:
        queue.add("a")
        queue.add("a")
        assert await queue.take() == "a"
        queue.done("a")
        await nothing_waits(queue)

    virtually(story)


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards_and_not_before() -> None:
    async def story(queue: KeyedQueue) -> None:
        queue.add("a")
        await queue.take()
        queue.add("a")
        queue.add("a")
        await nothing_waits(queue)
        queue.done("a")
        assert await queue.take() == "a"
        queue.done("a")
        await nothing_waits(queue)

    virtually(story)


def test_the_earlier_of_two_wishes_to_look_again_wins() -> None:
    async def story(queue: KeyedQueue) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        queue.add_after("a", 10)
        queue.add_after("a", 2)
        queue.add_after("a", 5)
        assert await queue.take() == "a"
        assert loop.time() - begun == pytest.approx(2)
        queue.done("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.take(), 60)

    virtually(story)


def test_waiting_workers_share_the_keys() -> None:
    async def story(queue: KeyedQueue) -> None:
        workers = [asyncio.create_task(queue.take()) for _ in range(3)]
        await asyncio.sleep(0)
        for key in ("a", "b", "c"):
            queue.add(key)
        assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]

    virtually(story)


def test_a_worker_that_is_cancelled_takes_no_key_with_it() -> None:
    async def story(queue: KeyedQueue) -> None:
        worker = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        worker.cancel()
        queue.add("a")
        assert await queue.take() == "a"

    virtually(story)


def test_a_closed_queue_leaves_no_timer_behind() -> None:
    async def story(queue: KeyedQueue) -> None:
        queue.add_after("a", 1)
        queue.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.take(), 60)

    virtually(story)
