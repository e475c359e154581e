"""Tests long lists in virtual time while requests are lost, refused, slow or cut: the list continues, and
the size of its pages follows the objects and the network."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.k8s.kinds import NODES
from recover.kube.cluster import ListPage
from recover.kube.pages import PAGE_BYTES, PAGE_MAX, PAGE_MIN, PAGE_TRIES, Pages
from tests.recover.scripted import GONE, Scripted, raw

START = datetime(2026, 11, 26, tzinfo=UTC)
LOST = ReplyLost("connection reset")


class Server(Scripted):
    """Serves `count` objects of `size` bytes. `fails(limit)` may raise for a request of `limit` objects."""

    def __init__(
        self, count: int, size: int = 1000, fails: Callable[[int], Any] = lambda _: None, took_s: float = 0.02
    ) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []
        """First object and limit of each request."""
        self._count = count
        self._item = msgspec.Raw(raw("a", 1, data="x" * size))
        self._fails = fails
        self._took_s = took_s

    async def list(self, resource: Resource, *, limit: int = 500, page: str = "", **of: Any) -> ListPage:
        begin = int(page or 0)
        self.asked.append((begin, limit))
        await asyncio.sleep(self._took_s)
        self._fails(limit)
        end = min(self._count, begin + limit)
        return ListPage([self._item] * (end - begin), "5", str(end) if end < self._count else "")

    @property
    def limits(self) -> list[int]:
        return [limit for _, limit in self.asked]


def read(server: Server, lists: int = 1) -> tuple[int, float]:
    """Returns the number of objects that arrived, and the seconds that this took. A list that fails begins
    again, up to `lists` times."""

    async def main(_: Clock) -> tuple[int, float]:
        pages = Pages(server, NODES)
        for left in reversed(range(lists)):
            try:
                found = [len(answer.items) async for answer in pages.read()]
                return sum(found), asyncio.get_running_loop().time()
            except (ApiError, ReplyLost):
                if not left:
                    raise
        raise AssertionError

    return run(main, start=START)


def raises(*errors: Exception | None) -> Callable[[int], None]:
    """Returns a function that raises these errors in this order, and then none."""
    left = list(errors)

    def fails(_: int) -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return fails


@pytest.mark.parametrize(
    ("size", "at_most"), [(1000, PAGE_MAX), (50_000, 100), (1_500_000, 3)], ids=["small", "large", "largest"]
)
def test_pages_are_as_long_as_the_objects_allow(size: int, at_most: int) -> None:
    server = Server(5000, size)
    assert read(server)[0] == 5000
    assert server.limits[0] == PAGE_MIN
    assert max(server.limits[1:]) <= at_most
    assert all(limit * size <= PAGE_BYTES for limit in server.limits[1:])


def test_a_lost_page_is_asked_for_again_and_the_list_goes_on() -> None:
    server = Server(2000, fails=raises(None, LOST, None, ApiError(503, "ServiceUnavailable", "rolling")))
    assert read(server)[0] == 2000
    assert [begin for begin, _ in server.asked] == [0, 100, 100, 1100, 1100]


def test_one_lost_request_in_ten_hardly_delays_a_list_of_a_hundred_thousand() -> None:
    chance = random.Random(7)

    def fails(_: int) -> None:
        if chance.random() < 0.1:
            raise LOST

    server = Server(100_000, fails=fails)
    assert read(server)[0] == 100_000
    assert sum(begin == 0 for begin, _ in server.asked) == 1
    assert len(server.asked) < 200


def test_pages_that_take_too_long_become_shorter() -> None:
    """The API server may have a webhook that converts each object, and the client waits no longer than 10
    s."""

    def fails(limit: int) -> None:
        if limit > 600:
            raise ReplyLost("no answer within 10 s")

    server = Server(20_000, fails=fails)
    assert read(server)[0] == 20_000
    assert sum(limit > 600 for limit in server.limits) < len(server.limits) / 3


def test_a_first_page_that_is_too_long_is_asked_for_shorter_when_the_list_begins_anew() -> None:
    def fails(limit: int) -> None:
        if limit > 10:
            raise ApiError(504, "Timeout", "the request did not complete")

    server = Server(300, size=1_000_000, fails=fails)
    assert read(server, lists=8)[0] == 300


def test_the_first_page_fails_at_once_and_a_later_one_after_some_tries() -> None:
    first, later = Server(2000, fails=raises(LOST)), Server(2000, fails=raises(None, *[LOST] * 20))
    for server, count in ((first, 1), (later, 1 + PAGE_TRIES)):
        with pytest.raises(ReplyLost):
            read(server)
        assert len(server.asked) == count


@pytest.mark.parametrize("error", [GONE, ApiError(403, "Forbidden", "no")], ids=["expired", "forbidden"])
def test_what_no_second_try_can_mend_is_told_at_once(error: ApiError) -> None:
    server = Server(2000, fails=raises(None, error))
    with pytest.raises(ApiError):
        read(server)
    assert len(server.asked) == 2


def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    busy = ApiError(429, "TooManyRequests", "slow down", retry_after_s=7)
    assert 7 <= read(Server(2000, fails=raises(None, busy)))[1] < 8


def test_the_next_page_comes_while_a_page_is_looked_at() -> None:
    async def main(_: Clock) -> float:
        async for _answer in Pages(Server(5000, took_s=1), NODES).read():
            await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert run(main, start=START) == pytest.approx(1 + 6)  # six pages of one second each


def test_who_stops_in_the_middle_of_a_list_leaves_no_request_behind() -> None:
    async def main(_: Clock) -> None:
        async with contextlib.aclosing(Pages(Server(5000), NODES).read()) as pages:
            await anext(pages)
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 2
        assert len(asyncio.all_tasks()) == 1

    run(main, start=START)
