"""The contract of any API server for Rekindle's lists and watches. These tests know only the `Cluster`
protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError, WatchEvent
from recover.k8s.kinds import CONFIGMAPS, NODEHEALTHS
from recover.kube.cluster import Cluster, ListPage

NS = "default"
WATCHED_S = 60.0
"""Timeout of a watch in seconds. A test closes a watch as soon as it has reported the expected events."""


def config(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}}


def read(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


def name_of(event: WatchEvent) -> str:
    return str(read(event.object)["metadata"]["name"])


async def events_until(watch: AsyncIterator[WatchEvent], count: int) -> list[tuple[str, str]]:
    """Returns type and name of the next `count` events, without bookmarks."""
    found: list[tuple[str, str]] = []
    async for event in watch:
        if event.type != "BOOKMARK":
            found.append((event.type, name_of(event)))
        if len(found) == count:
            break
    await watch.aclose()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=llm", ["a", "b"]),
        ("app==llm,rank!=0", ["b"]),
        ("rank in (0, 2)", ["a", "c"]),
        ("app notin (llm)", ["c", "d"]),
        ("app", ["a", "b", "c"]),
        ("!app", ["d"]),
    ],
)
async def test_a_list_takes_label_selectors(cluster: Cluster, selector: str, expected: list[str]) -> None:
    for name, labels in {
        "a": {"app": "llm", "rank": "0"},
        "b": {"app": "llm", "rank": "1"},
        "c": {"app": "other", "rank": "2"},
        "d": {"rank": "3"},
    }.items():
        await cluster.create(CONFIGMAPS, config(name, labels), NS)
    page = await cluster.list(CONFIGMAPS, namespace=NS, labels=selector)
    assert [read(bytes(item))["metadata"]["name"] for item in page.items] == expected


async def test_a_selector_that_cannot_be_read_is_a_bad_request(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        await cluster.list(CONFIGMAPS, namespace=NS, labels="a in b")
    assert refused.value.status == 400


async def test_pages_show_the_list_as_it_was_at_the_first_page(cluster: Cluster) -> None:
    for name in "abc":
        await cluster.create(CONFIGMAPS, config(name), NS)
    first = await cluster.list(CONFIGMAPS, namespace=NS, limit=2)
    await cluster.delete(CONFIGMAPS, "c", namespace=NS)
    await cluster.create(CONFIGMAPS, config("d"), NS)

    second = await cluster.list(CONFIGMAPS, namespace=NS, limit=2, page=first.next_page)

    assert [read(bytes(i))["metadata"]["name"] for i in (*first.items, *second.items)] == ["a", "b", "c"]
    assert second.resource_version == first.resource_version
    assert second.next_page == ""


async def test_a_watch_tells_what_happened_since_that_version(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("before"), NS)
    version = (await cluster.list(CONFIGMAPS, namespace=NS)).resource_version
    await cluster.create(CONFIGMAPS, config("a"), NS)
    await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=NS)
    await cluster.delete(CONFIGMAPS, "a", namespace=NS)

    watch = cluster.watch(CONFIGMAPS, namespace=NS, resource_version=version, timeout_s=WATCHED_S)

    assert await events_until(watch, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_an_object_that_leaves_the_selector_is_deleted_for_the_watch(cluster: Cluster) -> None:
    version = (await cluster.list(CONFIGMAPS, namespace=NS)).resource_version
    await cluster.create(CONFIGMAPS, config("a", {"app": "llm"}), NS)
    await cluster.patch(CONFIGMAPS, "a", {"metadata": {"labels": {"app": "other"}}}, namespace=NS)
    await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=NS)
    await cluster.patch(CONFIGMAPS, "a", {"metadata": {"labels": {"app": "llm"}}}, namespace=NS)

    watch = cluster.watch(
        CONFIGMAPS, namespace=NS, labels="app=llm", resource_version=version, timeout_s=WATCHED_S
    )

    assert await events_until(watch, 3) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_the_event_of_a_deletion_carries_the_version_of_the_deletion(cluster: Cluster) -> None:
    made = read(await cluster.create(CONFIGMAPS, config("a"), NS))["metadata"]["resourceVersion"]
    await cluster.delete(CONFIGMAPS, "a", namespace=NS)
    watch = cluster.watch(CONFIGMAPS, namespace=NS, resource_version=made, timeout_s=WATCHED_S)
    event = await anext(watch)
    await watch.aclose()  # type: ignore[attr-defined]
    assert int(read(event.object)["metadata"]["resourceVersion"]) > int(made)


async def test_a_short_watch_without_news_ends_after_its_time_and_says_nothing(cluster: Cluster) -> None:
    """Bookmarks come each minute: a reader that relies on a bookmark at the end has to list again."""
    version = (await cluster.list(CONFIGMAPS, namespace=NS)).resource_version
    watch = cluster.watch(CONFIGMAPS, namespace=NS, resource_version=version, timeout_s=1)
    assert [event async for event in watch] == []


async def test_a_cluster_wide_list_shows_all_namespaces(cluster: Cluster) -> None:
    await cluster.create(CONFIGMAPS, config("rekindle-a", {"mine": "yes"}), NS)
    await cluster.create(CONFIGMAPS, config("rekindle-b", {"mine": "yes"}), "kube-system")
    page = await cluster.list(CONFIGMAPS, labels="mine=yes")
    assert [read(bytes(i))["metadata"]["namespace"] for i in page.items] == ["default", "kube-system"]


async def test_a_watch_goes_on_after_the_last_event_that_was_seen(cluster: Cluster) -> None:
    version = (await cluster.list(CONFIGMAPS, namespace=NS)).resource_version
    for name in "abc":
        await cluster.create(CONFIGMAPS, config(name), NS)
    watch = cluster.watch(CONFIGMAPS, namespace=NS, resource_version=version, timeout_s=WATCHED_S)
    seen = [await anext(watch), await anext(watch)]
    await watch.aclose()  # type: ignore[attr-defined]
    assert [name_of(event) for event in seen] == ["a", "b"]

    at = read(seen[-1].object)["metadata"]["resourceVersion"]
    watch = cluster.watch(CONFIGMAPS, namespace=NS, resource_version=at, timeout_s=WATCHED_S)

    assert await events_until(watch, 1) == [("ADDED", "c")]


async def test_a_finalizer_makes_a_deletion_two_events(cluster: Cluster) -> None:
    body = config("a")
    body["metadata"]["finalizers"] = ["test/hold"]
    at = read(await cluster.create(CONFIGMAPS, body, NS))["metadata"]["resourceVersion"]
    await cluster.delete(CONFIGMAPS, "a", namespace=NS)
    await cluster.patch(CONFIGMAPS, "a", {"metadata": {"finalizers": None}}, namespace=NS)

    watch = cluster.watch(CONFIGMAPS, namespace=NS, resource_version=at, timeout_s=WATCHED_S)

    assert await events_until(watch, 2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_with_a_selector_that_cannot_be_read_is_a_bad_request(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        await anext(cluster.watch(CONFIGMAPS, labels="a in b", resource_version="1", timeout_s=WATCHED_S))
    assert refused.value.status == 400


# --- history that has ended -------------------------------------------------------------------------------


async def test_pages_and_watches_from_before_a_compaction_have_expired(
    cluster: Cluster, lose_history: Callable[[], Awaitable[None]]
) -> None:
    for name in "abc":
        await cluster.create(CONFIGMAPS, config(name), NS)
    first = await cluster.list(CONFIGMAPS, namespace=NS, limit=1)
    await cluster.create(CONFIGMAPS, config("d"), NS)
    await lose_history()

    with pytest.raises(ApiError) as refused:
        await cluster.list(CONFIGMAPS, namespace=NS, limit=1, page=first.next_page)
    assert (refused.value.status, refused.value.reason) == (410, "Expired")
    at = first.resource_version
    with pytest.raises(ApiError) as refused:
        await anext(cluster.watch(CONFIGMAPS, namespace=NS, resource_version=at, timeout_s=WATCHED_S))
    assert (refused.value.status, refused.value.reason) == (410, "Expired")

    anew: ListPage = await cluster.list(CONFIGMAPS, namespace=NS, limit=2)
    assert [read(bytes(item))["metadata"]["name"] for item in anew.items] == ["a", "b"]


async def test_a_watch_from_before_the_kind_was_installed_has_expired(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        await anext(cluster.watch(NODEHEALTHS, resource_version="1", timeout_s=WATCHED_S))
    assert (refused.value.status, refused.value.reason, refused.value.expired) == (410, "Expired", True)


@pytest.mark.on_request("REKINDLE_BOOKMARK")
async def test_a_quiet_watch_is_told_each_minute_how_far_it_is(cluster: Cluster) -> None:
    """REKINDLE_BOOKMARK=1 runs the test, which takes a minute for each cluster, because no API server can be
    made to send the bookmark sooner."""
    version = int((await cluster.list(CONFIGMAPS, namespace=NS)).resource_version)
    watch = cluster.watch(CONFIGMAPS, labels="none=such", resource_version=str(version), timeout_s=100)
    await cluster.create(CONFIGMAPS, config("a"), NS)

    async with asyncio.timeout(90):
        event = await anext(watch)

    assert event.type == "BOOKMARK"
    assert int(read(event.object)["metadata"]["resourceVersion"]) > version
    await watch.aclose()  # type: ignore[attr-defined]
