"""A child that answers late: the deadline applies to each call that the child announces, and a call wakes
nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest

from detectors.sources.child import LastingChild, SilentError, reaped
from tests.detectors.sources.slow_child import CALL_S

DEADLINE_S = 4 * CALL_S
"""Deadline in seconds, longer than a call and than the start of the child, and shorter than all calls of an
answer together."""
CALLS = 8


@pytest.fixture
async def child() -> AsyncIterator[LastingChild]:
    child = LastingChild("tests.detectors.sources.slow_child", outlived=[], tells_calls=True)
    assert await child.ask(60.0, b"0") == b"answered 0\n"
    yield child
    await child.end()


async def test_a_child_that_makes_progress_may_take_longer_than_one_call(child: LastingChild) -> None:
    assert await child.ask(DEADLINE_S, b"%d" % CALLS) == b"answered %d\n" % CALLS


async def test_the_call_that_hangs_is_named_within_its_deadline(child: LastingChild) -> None:
    began_s = time.monotonic()

    with pytest.raises(SilentError, match=f"^call {CALLS - 1}$"):
        await child.ask(DEADLINE_S, b"-%d" % CALLS)

    # The time is that of the earlier calls and of the last call's deadline: no deadline is waited for twice.
    assert time.monotonic() - began_s < (CALLS - 1) * CALL_S + 1.5 * DEADLINE_S


async def test_calls_wake_nobody_before_the_answer(
    child: LastingChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = 0
    wait = asyncio.wait

    async def counted(*arguments: object, **named: object) -> object:
        nonlocal waits
        waits += 1
        return await wait(*arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(asyncio, "wait", counted)
    await child.ask(60.0, b"%d" % CALLS)

    assert waits == 1


async def test_a_call_of_an_earlier_answer_is_not_blamed(child: LastingChild) -> None:
    await child.ask(60.0, b"1")

    with pytest.raises(EOFError, match="its start"):
        await child.ask(60.0, b"no number")


async def test_a_child_that_closes_its_output_and_does_not_end_is_silent(child: LastingChild) -> None:
    """A child that is killed in a driver behaves like this: its files are closed, and the kernel still works
    on its end."""
    with pytest.raises(SilentError, match="its end"):
        await child.ask(60.0, b"close")


async def test_a_child_that_answers_with_too_much_is_given_up(child: LastingChild) -> None:
    with pytest.raises(EOFError, match="bytes"):
        await child.ask(60.0, b"flood")


async def test_half_an_answer_of_a_child_that_dies_is_none(child: LastingChild) -> None:
    with pytest.raises(EOFError, match="status 3"):
        await child.ask(60.0, b"half")


async def test_a_cancellation_that_comes_with_the_end_of_the_child_is_not_forgotten() -> None:
    """Otherwise the agent would never end on a signal."""
    gone = asyncio.Event()

    class Process:
        returncode: int | None = None

        def kill(self) -> None: ...

        async def wait(self) -> int:
            await gone.wait()
            self.returncode = 0
            return 0

    task = asyncio.create_task(reaped(cast(asyncio.subprocess.Process, Process())))
    await asyncio.sleep(0)
    gone.set()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
