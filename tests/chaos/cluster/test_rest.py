"""Tests what the REST server adds to the store: status codes, users, streams, discovery, broken
connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from chaos.apiserver.rest import Server, serve, write_kubeconfig
from chaos.apiserver.store import MemoryCluster
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from recover.k8s.kinds import CONFIGMAPS, NODES
from recover.kube.auth import load_credentials

NS = "default"


@pytest.fixture
async def server(store: MemoryCluster) -> AsyncIterator[Server]:
    async with serve(store, users={"secret": "controller"}) as up:
        yield up


@pytest.fixture
async def api(server: Server) -> AsyncIterator[KubeApi]:
    async with KubeApi(Credentials(server.url, token="secret"), timeout_s=30.0) as up:
        yield up


async def create(api: KubeApi, name: str) -> Any:
    body = {"metadata": {"name": name}}
    return msgspec.json.decode(await api.request("POST", CONFIGMAPS.path(namespace=NS), body=body))


async def test_an_error_is_a_status_object(api: KubeApi) -> None:
    with pytest.raises(ApiError) as refused:
        await api.request("GET", CONFIGMAPS.path("a", NS))
    assert (refused.value.status, refused.value.reason) == (404, "NotFound")
    assert refused.value.message == 'configmaps "a" not found'


async def test_an_unknown_path_and_a_body_that_is_not_json_are_refused_cleanly(server: Server) -> None:
    async with aiohttp.ClientSession(server.url) as session:
        async with session.get("/apis/unknown/v1/things") as answer:
            assert (answer.status, (await answer.json())["reason"]) == (404, "NotFound")
        async with session.post(CONFIGMAPS.path(namespace=NS), data=b"{") as answer:
            assert (answer.status, (await answer.json())["reason"]) == (400, "BadRequest")
        async with session.put(CONFIGMAPS.path("a", NS), data=b"{}") as answer:
            assert (answer.status, (await answer.json())["reason"]) == (405, "MethodNotAllowed")


async def test_the_token_says_who_writes(api: KubeApi, store: MemoryCluster, server: Server) -> None:
    await create(api, "a")
    async with aiohttp.ClientSession(server.url) as session:
        await session.post(CONFIGMAPS.path(namespace=NS), json={"metadata": {"name": "b"}})
    assert [entry.user for entry in store.audit] == ["controller", "system:anonymous"]


async def test_a_kubeconfig_leads_our_own_client_here(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, server.url, "secret")
    credentials = await load_credentials(kubeconfig=str(path))
    assert credentials.server == server.url
    assert credentials.tokens is not None
    assert await credentials.tokens.token() == "secret"
    assert path.stat().st_mode & 0o077 == 0


async def test_bookmarks_come_only_when_asked_for(
    api: KubeApi, store: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.apiserver.client.BOOKMARK_S", 1.2)

    async def types(**params: str) -> list[str]:
        params["resourceVersion"] = str(store.version)
        watch = api.watch(CONFIGMAPS.path(), params=params, timeout_s=2, silence_s=60)
        return [event.type async for event in watch]

    assert await asyncio.gather(types(), types(allowWatchBookmarks="true")) == [[], ["BOOKMARK"]]


async def test_a_watch_without_a_version_begins_with_what_is_there(api: KubeApi) -> None:
    await create(api, "a")
    watch = api.watch(CONFIGMAPS.path(), params={}, timeout_s=60, silence_s=60)
    event = await anext(watch)
    await watch.aclose()  # type: ignore[attr-defined]
    assert event.type == "ADDED"


async def test_a_watch_of_one_object_by_field_selector_sees_only_that_one(
    api: KubeApi, store: MemoryCluster
) -> None:
    params = {"fieldSelector": "metadata.name=b", "resourceVersion": str(store.version)}
    await create(api, "a")
    await create(api, "b")
    watch = api.watch(CONFIGMAPS.path(), params=params, timeout_s=1, silence_s=60)
    names = [msgspec.json.decode(event.object)["metadata"]["name"] async for event in watch]
    assert names == ["b"]


async def test_an_expired_watch_is_an_error_410(api: KubeApi, store: MemoryCluster) -> None:
    first = str(store.version)
    await create(api, "a")
    store.history(CONFIGMAPS).forget()
    with pytest.raises(ApiError) as refused:
        async for _ in api.watch(
            CONFIGMAPS.path(), params={"resourceVersion": first}, timeout_s=60, silence_s=60
        ):
            pass
    assert refused.value.expired


async def test_a_lost_reply_is_a_broken_connection_and_the_write_is_done(
    api: KubeApi, server: Server, store: MemoryCluster
) -> None:
    server.client("controller").disturbance.lose_replies = 1
    with pytest.raises(ReplyLost):
        await create(api, "a")
    assert store.read(CONFIGMAPS, "a", NS)


async def test_too_many_requests_says_when_to_come_again(api: KubeApi, server: Server) -> None:
    server.client("controller").disturbance.refuse_with.append(429)
    with pytest.raises(ApiError) as refused:
        await create(api, "a")
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1.0)


async def test_delete_options_are_heeded(api: KubeApi) -> None:
    made = await create(api, "a")
    path = CONFIGMAPS.path("a", NS)
    with pytest.raises(ApiError) as refused:
        await api.request("DELETE", path, body={"preconditions": {"uid": "another"}})
    assert refused.value.status == 409
    await api.request("DELETE", path, body={"preconditions": {"uid": made["metadata"]["uid"]}})


@pytest.mark.parametrize(
    ("body", "query"),
    [({"dryRun": ["All"]}, {}), (None, {"dryRun": "All"})],
    ids=["in the body, as kubectl sends it", "in the query"],
)
async def test_a_dry_run_deletes_nothing(api: KubeApi, body: Any, query: dict[str, str]) -> None:
    made = await create(api, "a")
    path = CONFIGMAPS.path("a", NS)
    await api.request("DELETE", path, params=query, body=body)
    assert msgspec.json.decode(await api.request("GET", path)) == made


async def test_a_strategic_merge_is_taken_where_it_equals_a_merge_patch(api: KubeApi) -> None:
    await api.request("POST", NODES.path(), body={"metadata": {"name": "n1"}})
    path, kind = NODES.path("n1"), "application/strategic-merge-patch+json"
    answer = await api.request("PATCH", path, body={"spec": {"unschedulable": True}}, content_type=kind)
    assert msgspec.json.decode(answer)["spec"]["unschedulable"] is True
    with pytest.raises(ApiError) as refused:
        await api.request("PATCH", path, body={"status": {"addresses": []}}, content_type=kind)
    assert refused.value.status == 415


async def test_a_strategic_merge_changes_one_condition_and_leaves_the_others(api: KubeApi) -> None:
    there = [{"type": name, "status": "True"} for name in ("Ready", "Ours")]
    await api.request(
        "POST", NODES.path(), body={"metadata": {"name": "n1"}, "status": {"conditions": there}}
    )
    path, kind = NODES.path("n1", subresource="status"), "application/strategic-merge-patch+json"

    async def left(one: dict[str, str]) -> Any:
        answer = await api.request("PATCH", path, body={"status": {"conditions": [one]}}, content_type=kind)
        return msgspec.json.decode(answer)["status"]["conditions"]

    assert await left({"type": "Ours", "status": "False"}) == [there[0], {"type": "Ours", "status": "False"}]
    assert await left({"type": "Ours", "$patch": "delete"}) == there[:1]
    assert await left({"type": "Ours", "status": "True"}) == there


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "many"},
        {"watch": "1", "resourceVersion": "abc"},
        {"watch": "1", "timeoutSeconds": "long"},
    ],
)
async def test_a_query_that_is_not_a_number_is_a_bad_request(api: KubeApi, query: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        await api.request("GET", CONFIGMAPS.path(), params=query)
    assert refused.value.status == 400


async def test_the_official_client_lists_and_watches(server: Server, api: KubeApi) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    await api.request("POST", NODES.path(), body={"metadata": {"name": "n1", "labels": {"pool": "a"}}})

    def observe() -> tuple[list[str], list[str], str]:
        configuration = kubernetes.client.Configuration(host=server.url)
        with kubernetes.client.ApiClient(configuration) as client:
            core = kubernetes.client.CoreV1Api(client)
            listed = [node.metadata.name for node in core.list_node(label_selector="pool=a").items]
            watch = kubernetes.watch.Watch()
            watched = [e["object"].metadata.name for e in watch.stream(core.list_node, timeout_seconds=1)]
            version = kubernetes.client.VersionApi(client).get_code().git_version
        return listed, watched, version

    assert await asyncio.to_thread(observe) == (["n1"], ["n1"], "v1.36.0-simulated")
