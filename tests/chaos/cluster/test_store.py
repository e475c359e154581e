"""Features that only the simulation has: a bounded history, schemas, the audit log, the hooks for kill
tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.patching import json_patch, merge_patch
from chaos.apiserver.store import Audit, MemoryCluster
from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from recover.api.crds import manifests
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, NODES
from tests.chaos.cluster.conftest import START

NS = "default"
INCIDENT = {"apiVersion": INCIDENTS.api_version, "kind": INCIDENTS.kind}


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_a_watch_that_starts_before_the_kept_history_is_expired(store: MemoryCluster) -> None:
    client = Client(store, "tester")
    first = str(store.version)
    for name in "abc":
        await client.create(CONFIGMAPS, config(name), NS)
    store.history(CONFIGMAPS).forget(keep=1)

    with pytest.raises(ApiError) as refused:
        await anext(client.watch(CONFIGMAPS, resource_version=first, timeout_s=1))
    assert refused.value.expired
    kept = str(store.version - 1)
    event = await anext(client.watch(CONFIGMAPS, resource_version=kept, timeout_s=1))
    assert event.type == "ADDED"


async def test_the_next_page_of_a_list_that_is_too_old_is_expired(store: MemoryCluster) -> None:
    client = Client(store, "tester")
    for name in "abc":
        await client.create(CONFIGMAPS, config(name), NS)
    page = await client.list(CONFIGMAPS, limit=1)
    await client.delete(CONFIGMAPS, "c", namespace=NS)
    store.history(CONFIGMAPS).forget()

    with pytest.raises(ApiError) as refused:
        await client.list(CONFIGMAPS, limit=1, page=page.next_page)
    assert refused.value.expired


def test_history_is_bounded_by_itself(now: Callable[[], datetime]) -> None:
    store = MemoryCluster(now, history_changes_max=5)
    for number in range(50):
        store.create(CONFIGMAPS, config(f"c{number}"), NS)
    history = store.history(CONFIGMAPS)
    assert len(history.since(history.dropped_until)) <= 10
    with pytest.raises(ApiError):
        history.since(history.dropped_until - 1)


def test_the_same_calls_give_the_same_bytes(now: Callable[[], datetime]) -> None:
    def story() -> bytes:
        store = MemoryCluster(now, seed=3)
        return store.create(CONFIGMAPS, {"metadata": {"generateName": "a-"}}, NS).raw

    assert story() == story()


def test_what_a_caller_passes_in_is_copied(store: MemoryCluster) -> None:
    body = config("a", x="1")
    store.create(CONFIGMAPS, body, NS)
    body["data"]["x"] = "changed"
    assert store.read(CONFIGMAPS, "a", NS).body["data"] == {"x": "1"}


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["fault"],
            "properties": {
                "fault": {"type": "string", "enum": ["nvlink", "host"]},
                "evidence": {"type": "string", "maxLength": 5},
                "at": {"type": "string", "format": "date-time"},
                "count": {"type": "integer", "minimum": 1},
                "name": {"type": "string", "pattern": "^n[0-9]+$"},
                "nodes": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            },
        }
    },
}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.fault: Required value"),
        ({"fault": "other"}, "spec.fault: Unsupported value"),
        ({"fault": 3}, "spec.fault: Invalid value"),
        ({"fault": "host", "evidence": "too long"}, "spec.evidence: Too long"),
        ({"fault": "host", "at": "yesterday"}, "spec.at: Invalid value"),
        ({"fault": "host", "at": "2026-11-21"}, "spec.at: Invalid value"),
        ({"fault": "host", "count": 0}, "spec.count: Invalid value"),
        ({"fault": "host", "count": True}, "spec.count: Invalid value"),
        ({"fault": "host", "name": "x1"}, "spec.name: Invalid value"),
        ({"fault": "host", "nodes": ["a", "b", "c"]}, "spec.nodes: Too many"),
        ({"fault": "host", "nodes": ["a", 1]}, "spec.nodes[1]: Invalid value"),
    ],
)
def test_an_object_that_violates_its_schema_is_refused_by_field(
    now: Callable[[], datetime], spec: dict[str, Any], field: str
) -> None:
    store = MemoryCluster(now, schemas={INCIDENTS: SCHEMA})
    with pytest.raises(ApiError) as refused:
        store.create(INCIDENTS, {**INCIDENT, "metadata": {"name": "i"}, "spec": spec})
    assert refused.value.status == 422
    assert field in refused.value.message


def test_unknown_fields_are_pruned(now: Callable[[], datetime]) -> None:
    store = MemoryCluster(now, schemas={INCIDENTS: SCHEMA})
    spec = {"fault": "host", "at": "2026-11-21T09:00:00Z", "typo": 1}
    made = store.create(INCIDENTS, {**INCIDENT, "metadata": {"name": "i"}, "spec": spec})
    assert "typo" not in made.body["spec"]
    same = store.patch(INCIDENTS, "i", {"spec": {"another": 1}})
    assert same.raw == made.raw


def test_a_crd_brings_its_schema(store: MemoryCluster) -> None:
    for crd in manifests():
        store.add_crd(crd)
    with pytest.raises(ApiError) as refused:
        store.create(INCIDENTS, {**INCIDENT, "metadata": {"name": "i"}, "spec": {"fault": "no-such-fault"}})
    assert refused.value.status == 422
    assert "spec.fault: Unsupported value" in refused.value.message


async def test_the_audit_log_says_who_wrote_what_and_how_it_was_answered(store: MemoryCluster) -> None:
    agent, controller = Client(store, "agent"), Client(store, "controller")
    await controller.create(NODES, {"metadata": {"name": "n1"}})
    await controller.patch(NODES, "n1", {})
    with pytest.raises(ApiError):
        await agent.patch(NODES, "n1", {"metadata": {"resourceVersion": "1"}})

    found = [(e.user, e.verb, e.name, e.status, e.changed) for e in store.audit]

    assert found == [
        ("controller", "create", "n1", 201, True),
        ("controller", "patch", "n1", 200, False),
        ("agent", "patch", "n1", 409, False),
    ]
    assert store.audit[0].at == START


async def test_the_reply_can_be_withheld_after_the_write_was_applied(store: MemoryCluster) -> None:
    seen: list[Audit] = []

    async def withhold(entry: Audit) -> None:
        seen.append(entry)
        await asyncio.Event().wait()

    store.before_reply = withhold
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Client(store, "tester").create(CONFIGMAPS, config("a"), NS)
    assert [entry.name for entry in seen] == ["a"]
    assert store.read(CONFIGMAPS, "a", NS)


async def test_a_lost_reply_leaves_the_write_done(store: MemoryCluster) -> None:
    client = Client(store, "tester")
    client.disturbance.lose_replies = 1
    with pytest.raises(ReplyLost):
        await client.create(CONFIGMAPS, config("a"), NS)
    assert await client.get(CONFIGMAPS, "a", NS)


async def test_a_refused_request_is_not_applied(store: MemoryCluster) -> None:
    client = Client(store, "tester")
    client.disturbance.refuse_with.extend([429, 500])
    for status in (429, 500):
        with pytest.raises(ApiError) as refused:
            await client.create(CONFIGMAPS, config("a"), NS)
        assert refused.value.status == status
    await client.create(CONFIGMAPS, config("a"), NS)


async def test_only_the_disturbed_client_is_cut_off(store: MemoryCluster) -> None:
    here, there = Client(store, "here"), Client(store, "there")
    here.disturbance.partition()
    with pytest.raises(ReplyLost):
        await here.create(CONFIGMAPS, config("a"), NS)
    await there.create(CONFIGMAPS, config("b"), NS)
    here.disturbance.heal()
    with pytest.raises(ApiError) as refused:
        await here.get(CONFIGMAPS, "a", NS)
    assert refused.value.not_found


async def test_dropping_watches_breaks_an_open_one(store: MemoryCluster) -> None:
    client = Client(store, "tester")
    watch = client.watch(CONFIGMAPS, resource_version=str(store.version), timeout_s=60)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    client.disturbance.drop_watches()
    with pytest.raises(ReplyLost):
        await waiting


def test_a_lagging_watch_shows_events_late_but_all_of_them() -> None:
    async def main(clock: Clock) -> list[tuple[float, str]]:
        store = MemoryCluster(clock.now)
        client = Client(store, "tester")
        client.disturbance.watch_lag_s = 5.0

        async def read() -> list[tuple[float, str]]:
            watch = client.watch(CONFIGMAPS, resource_version=str(store.version), timeout_s=30)
            return [
                ((clock.now() - START).total_seconds(), _name(event))
                async for event in watch
                if event.type != "BOOKMARK"
            ]

        reading = asyncio.create_task(read())
        await asyncio.sleep(6)
        store.create(CONFIGMAPS, config("a"), NS)
        await asyncio.sleep(3)
        store.create(CONFIGMAPS, config("b"), NS)
        return await reading

    seen = run(main, start=START)

    assert [name for _, name in seen] == ["a", "b"]
    assert seen[0][0] >= 11
    assert seen[1][0] >= 14


def _name(event: WatchEvent) -> str:
    return str(msgspec.json.decode(event.object)["metadata"]["name"])


def test_a_foreground_deletion_waits_for_the_finalizer(store: MemoryCluster) -> None:
    store.create(CONFIGMAPS, config("a"), NS)
    marked = store.delete(CONFIGMAPS, "a", Deletion(propagation=Propagation.FOREGROUND), NS)
    assert marked.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert store.read(CONFIGMAPS, "a", NS)


KEYS = st.text("ab/~", max_size=2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_can_be_applied_twice_and_leaves_its_input_alone(
    document: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = msgspec.json.encode(document)
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once
    assert msgspec.json.encode(document) == before


@given(OBJECTS, KEYS, JSON)
def test_a_json_patch_adds_tests_and_removes_the_same_member(
    document: dict[str, Any], key: str, value: Any
) -> None:
    before = msgspec.json.encode(document)
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    add, test = {"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}
    assert json_patch(document, [add, test])[key] == value
    without = json_patch(document, [add, test, {"op": "remove", "path": path}])
    assert without == {k: v for k, v in document.items() if k != key}
    assert msgspec.json.encode(document) == before
