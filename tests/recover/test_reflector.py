"""List and watch: expired history, empty and broken watches, waits the server asks for. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.kubeapi import ApiError, ReplyLost, WatchEvent
from recover.kube.cluster import NODES, ListPage
from recover.kube.reflector import MISSING_LOOK_AGAIN_S, Reflector
from tests.recover.scripted import GONE, Scripted, WatchedEnough, event, raw

START = datetime(2026, 11, 21, tzinfo=UTC)


class Sink:
    def __init__(self) -> None:
        self.lists: list[tuple[int, str]] = []
        self.events: list[str] = []

    def replace(self, items: list[msgspec.Raw], version: str) -> None:
        self.lists.append((len(items), version))

    def apply(self, event: WatchEvent) -> None:
        self.events.append(event.type)


def page(version: str, *names: str, next_page: str = "") -> ListPage:
    return ListPage([msgspec.Raw(raw(name, 1)) for name in names], version, next_page)


def follow(lists: list[Any], watches: list[Any], *, optional: bool = False) -> tuple[Scripted, Sink, float]:
    """Runs a reflector to the end of the script; returns the seconds that it took, too."""
    cluster, sink = Scripted(list=lists, watch=watches), Sink()

    async def main(_: Clock) -> float:
        with contextlib.suppress(WatchedEnough):
            await Reflector(cluster, NODES, sink, optional=optional).run()
        return asyncio.get_running_loop().time()

    return cluster, sink, run(main, start=START)


def watched_from(cluster: Scripted) -> list[str]:
    return [version for method, version in cluster.calls if method == "watch"]


def test_all_pages_make_one_list_and_the_watch_goes_on_from_its_version() -> None:
    cluster, sink, _ = follow(
        [page("5", "a", "b", next_page="p2"), page("5", "c")], [[event("ADDED", "d", 7)]]
    )

    assert sink.lists == [(3, "5")]
    assert sink.events == ["ADDED"]
    assert watched_from(cluster) == ["5", "7"]


def test_an_expired_history_is_listed_again_at_once() -> None:
    _, sink, took_s = follow([page("5", "a"), page("90", "a", "b")], [[GONE]])

    assert sink.lists == [(1, "5"), (2, "90")]
    assert took_s == 0


def test_a_bookmark_moves_the_version_and_tells_nothing() -> None:
    cluster, sink, _ = follow([page("5")], [[event("BOOKMARK", "", 60)]])

    assert sink.events == []
    assert watched_from(cluster) == ["5", "60"]


@pytest.mark.parametrize("watch", [[], [event("BOOKMARK", "", 5)]], ids=["nothing", "an old bookmark"])
def test_watches_that_end_at_once_without_news_are_not_asked_for_in_a_hot_loop(watch: list[Any]) -> None:
    cluster, _, took_s = follow([page("5")], [list(watch) for _ in range(30)])

    assert len(watched_from(cluster)) == 31
    assert took_s > 10


def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    busy = ApiError(429, "TooManyRequests", "slow down", retry_after_s=17)

    _, sink, took_s = follow([busy, page("5")], [])

    assert sink.lists == [(0, "5")]
    assert took_s == 17


def test_an_expired_page_begins_the_list_afresh() -> None:
    _, sink, _ = follow([page("5", "a", next_page="p2"), GONE, page("8", "a", "b")], [])

    assert sink.lists == [(2, "8")]


def test_watches_that_brought_news_before_they_broke_are_taken_up_again_soon() -> None:
    watches = [[event("MODIFIED", "a", 10 + i), ReplyLost("connection reset")] for i in range(20)]

    cluster, sink, took_s = follow([page("5")], watches)

    assert len(sink.events) == 20
    assert watched_from(cluster)[-1] == "29"
    assert took_s < 5


NOT_INSTALLED = ApiError(404, "NotFound", "the server could not find the requested resource")


def test_a_framework_that_is_installed_later_is_followed_from_then_on() -> None:
    _, sink, took_s = follow([NOT_INSTALLED, page("5", "a")], [[event("ADDED", "b", 7)]], optional=True)

    assert (sink.lists, sink.events) == ([(1, "5")], ["ADDED"])
    assert took_s == MISSING_LOOK_AGAIN_S


def test_the_controller_is_in_step_though_a_framework_is_not_installed() -> None:
    cluster = Scripted(list=[NOT_INSTALLED], watch=[])

    async def main(_: Clock) -> None:
        reflector = Reflector(cluster, NODES, Sink(), optional=True)
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), timeout=1)
        following.cancel()

    run(main, start=START)
