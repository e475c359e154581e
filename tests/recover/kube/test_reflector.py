"""Tests list and watch in virtual time: expired history, empty and broken watches, waits that the server
requests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from recover.k8s.kinds import NODES
from recover.kube.cluster import ListPage
from recover.kube.reflector import MISSING_REQUEUE_S, OLDER_S_MAX, Reflector, RestoredError
from tests.recover.scripted import GONE, Scripted, WatchedEnough, event, raw

START = datetime(2026, 11, 21, tzinfo=UTC)


class Sink:
    """Records length and version of each finished list, and the events between the lists."""

    def __init__(self, owes_list: bool = False) -> None:
        self.lists: list[tuple[int, str]] = []
        self.events: list[str] = []
        self._items = 0
        self._owes_list = owes_list

    def owes_list(self) -> bool:
        return self._owes_list

    def begin(self) -> None:
        self._items = 0

    def listed(self, item: msgspec.Raw) -> None:
        self._items += 1

    def finish(self, version: str) -> None:
        self.lists.append((self._items, version))

    def apply(self, event: WatchEvent) -> None:
        self.events.append(event.type)


def page(version: str, *names: str, next_page: str = "") -> ListPage:
    return ListPage([msgspec.Raw(raw(name, 1)) for name in names], version, next_page)


def follow(
    lists: list[Any],
    watches: list[Any],
    *,
    optional: bool = False,
    owes_list: bool = False,
) -> tuple[Scripted, Sink, float]:
    """Runs a reflector to the end of the script. Returns the cluster, the sink and the seconds that the
    run took."""
    cluster = Scripted(list=lists, watch=watches)
    sink = Sink(owes_list)

    async def main(_: Clock) -> float:
        with contextlib.suppress(WatchedEnough):
            await Reflector(cluster, NODES, sink, optional=optional).run()
        return asyncio.get_running_loop().time()

    return cluster, sink, run(main, start=START)


def asked(cluster: Scripted) -> list[str]:
    return [method for method, _ in cluster.calls]


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


def test_a_history_that_expires_after_every_list_is_not_listed_in_a_hot_loop() -> None:
    """Each list contains something new, and so does each watch before its 410."""
    lists = [page(str(100 * n), "a") for n in range(1, 32)]
    watches = [[event("MODIFIED", "a", 100 * n + 1), GONE] for n in range(1, 31)]

    _, sink, took_s = follow(lists, watches)

    assert len(sink.lists) == 31
    assert took_s > 10


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


def test_a_watch_never_goes_on_from_an_older_version_than_it_has_seen() -> None:
    cluster, sink, _ = follow([page("5")], [[event("ADDED", "a", 9), event("MODIFIED", "b", 7)]])

    assert sink.events == ["ADDED", "MODIFIED"]
    assert watched_from(cluster) == ["5", "9"]


def test_a_list_older_than_what_was_seen_is_not_believed() -> None:
    """Another API server answers with old data: its list would bring back an object that is gone."""
    _, sink, took_s = follow(
        [page("5", "a"), page("8", "a", "b"), page("9", "b")], [[event("DELETED", "a", 9), GONE]]
    )

    assert sink.lists == [(1, "5"), (1, "9")]
    assert took_s > 0


def test_after_a_silent_watch_a_server_that_was_set_back_is_noticed() -> None:
    """A watch from a version that the API server has not reached is silent. Otherwise the watch would go on
    once a restored etcd has reached that version by other changes."""
    _, sink, _ = follow([page("9", "a"), page("7"), page("8"), page("9", "b")], [[70]])

    assert sink.lists == [(1, "9"), (1, "9")]


def test_a_silent_watch_of_a_quiet_kind_goes_on_from_its_version() -> None:
    cluster, sink, _ = follow([page("9", "a"), page("12")], [[70]])

    assert sink.lists == [(1, "9")]
    assert watched_from(cluster) == ["9", "9"]


def test_the_controller_ends_if_its_api_server_stays_older_than_its_cache() -> None:
    """This happens after etcd was restored from a backup. A new process lists everything afresh."""
    cluster = Scripted(list=[page("9", "a"), *[page("7", "a")] * 100], watch=[[70]])

    async def main(_: Clock) -> float:
        with pytest.raises(RestoredError, match="as of version 7, although 9 was seen"):
            await Reflector(cluster, NODES, Sink()).run()
        return asyncio.get_running_loop().time()

    assert 70 + OLDER_S_MAX <= run(main, start=START) < 70 + 2 * OLDER_S_MAX


def test_an_event_that_says_no_version_does_not_end_the_controller() -> None:
    odd = WatchEvent("MODIFIED", msgspec.Raw(b'{"metadata":null}'))

    cluster, sink, _ = follow([page("5")], [[odd], [event("ADDED", "a", 6)]])

    assert sink.events == ["ADDED"]
    assert watched_from(cluster) == ["5", "5", "6"]


def test_an_event_with_annotations_that_cannot_be_read_hides_no_version() -> None:
    metadata = {"name": "a", "resourceVersion": "6", "annotations": {"count": 1}}
    odd = WatchEvent("MODIFIED", msgspec.Raw(msgspec.json.encode({"metadata": metadata})))

    cluster, sink, _ = follow([page("5")], [[odd, event("ADDED", "b", 7)]])

    assert sink.events == ["MODIFIED", "ADDED"]
    assert watched_from(cluster) == ["5", "7"]


@pytest.mark.parametrize("version", ["", "rev-7"])
def test_an_answer_with_a_version_that_is_no_number_does_not_end_the_controller(version: str) -> None:
    metadata = msgspec.Raw(msgspec.json.encode({"metadata": {"resourceVersion": version}}))
    odd = WatchEvent("MODIFIED", metadata)

    cluster, sink, _ = follow([page(version, "a"), page("5", "a")], [[odd], [event("ADDED", "b", 6)]])

    assert (sink.lists, sink.events) == ([(1, "5")], ["ADDED"])
    assert watched_from(cluster) == ["5", "5", "6"]


def test_a_wait_of_an_hour_is_not_kept() -> None:
    busy = ApiError(503, "ServiceUnavailable", "a proxy's maintenance page", retry_after_s=3600)

    _, _, took_s = follow([busy, page("5")], [])

    assert took_s == 120


# --- turns ------------------------------------------------------------------------------------------------


def test_others_have_their_turn_while_a_long_list_is_read() -> None:
    class Slow(Sink):
        def listed(self, item: msgspec.Raw) -> None:
            ends_s = time.perf_counter() + 0.001
            while time.perf_counter() < ends_s:
                pass

    cluster, turns = Scripted(list=[page("5", *map(str, range(60)))]), 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main() -> None:
        beside = asyncio.create_task(others())
        with contextlib.suppress(WatchedEnough):
            await Reflector(cluster, NODES, Slow()).run()
        beside.cancel()

    asyncio.run(main())

    assert turns >= 8


# --- frameworks that are not installed --------------------------------------------------------------------

NOT_INSTALLED = ApiError(404, "NotFound", "the server could not find the requested resource")


def test_a_framework_that_is_installed_later_is_followed_from_then_on() -> None:
    _, sink, took_s = follow([NOT_INSTALLED, page("5", "a")], [[event("ADDED", "b", 7)]], optional=True)

    assert (sink.lists, sink.events) == ([(1, "5")], ["ADDED"])
    assert took_s == MISSING_REQUEUE_S


def test_the_controller_is_in_step_though_a_framework_is_not_installed() -> None:
    cluster = Scripted(list=[NOT_INSTALLED], watch=[])

    async def main(_: Clock) -> None:
        sink = Sink()
        reflector = Reflector(cluster, NODES, sink, optional=True)
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), timeout=1)
        following.cancel()
        assert (sink.lists, sink.events) == ([], [])

    run(main, start=START)


def test_a_framework_that_is_taken_off_and_installed_anew_is_listed_anew() -> None:
    """The versions of its objects have moved on, and the API server would refuse a watch from the old ones
    every time."""
    cluster, sink, _ = follow(
        [page("5", "a"), NOT_INSTALLED, page("90", "a")], [[NOT_INSTALLED]], optional=True
    )

    assert sink.lists == [(1, "5"), (1, "90")]
    assert asked(cluster) == ["list", "watch", "list", "list", "watch"]


def test_a_sink_that_left_something_out_is_given_a_list_at_the_end_of_a_watch() -> None:
    _, sink, _ = follow([page("5", "a"), page("7", "a", "b")], [[event("ADDED", "b", 7)], []], owes_list=True)

    assert [version for _, version in sink.lists] == ["5", "7"]
