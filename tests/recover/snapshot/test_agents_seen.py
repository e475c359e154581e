"""Commands that only read find the agents' pods by the release's own settings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError
from detectors.wire.contract import Severity
from recover.kube.cluster import ListPage
from recover.model.agent_readiness import AGENT_LABELS
from recover.policy.settings import Signals
from recover.snapshot.agents_seen import agents_seen, signals_seen
from tests.recover.scripted import MISSING, Scripted

FORBIDDEN = ApiError(403, "Forbidden", "you may not")


def settings(text: str, namespace: str = "rekindle-system") -> bytes:
    meta = {"name": "rekindle-settings", "namespace": namespace}
    return msgspec.json.encode({"metadata": meta, "data": {"controller.toml": text}})


def agent(node: str, ready: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"rekindle-agent-{node}",
            "namespace": "rekindle-system",
            "uid": f"{node}-agent",
            "resourceVersion": "7",
            "labels": AGENT_LABELS,
        },
        "spec": {"nodeName": node, "containers": [{"name": "agent"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def page(*items: Any) -> ListPage:
    raws = [item if isinstance(item, bytes) else msgspec.json.encode(item) for item in items]
    return ListPage(items=[msgspec.Raw(raw) for raw in raws], resource_version="9", next_page="")


ARE_PODS = 'mode = "recover"\nagents_are_pods = true\n'


async def test_agents_are_found_by_node_and_by_their_readiness() -> None:
    cluster = Scripted(get=[settings(ARE_PODS)], list=[page(agent("n1", "True"), agent("n2", "False"))])

    found = await agents_seen(cluster)

    assert found is not None
    assert {name: pod.ready for name, pod in found.items()} == {"n1": True, "n2": False}


async def test_where_all_agents_are_gone_that_is_known() -> None:
    assert await agents_seen(Scripted(get=[settings(ARE_PODS)], list=[page()])) == {}


async def test_a_release_in_another_namespace_is_found_by_its_settings() -> None:
    listed = page(settings(ARE_PODS, "ops"))
    cluster = Scripted(get=[MISSING], list=[listed, page(agent("n1", "True"))])

    assert set(await agents_seen(cluster) or ()) == {"n1"}


@pytest.mark.parametrize(
    "answers",
    [
        {"get": [FORBIDDEN]},
        {"get": [MISSING], "list": [FORBIDDEN]},
        {"get": [MISSING], "list": [page()]},
        {"get": [MISSING], "list": [page(settings(ARE_PODS, "a"), settings(ARE_PODS, "b"))]},
        {"get": [settings(ARE_PODS)], "list": [FORBIDDEN]},
        {"get": [settings('mode = "recover"')]},
        {"get": [settings("mode = [")]},
        {"get": [b"{}"]},
    ],
    ids=[
        "no right to the settings",
        "no right to look for them",
        "no release",
        "two that say so",
        "no right to the pods",
        "agents that are no pods",
        "settings that cannot be read",
        "no ConfigMap",
    ],
)
async def test_where_nobody_can_tell_nothing_is_said(answers: dict[str, list[Any]]) -> None:
    assert await agents_seen(Scripted(**answers)) is None


OWN_ROW = '[signals.conditions.GpuMemWatch]\nseverity = "fatal"\n'


async def test_peoples_own_rows_about_signals_of_nodes_are_those_of_the_release() -> None:
    found = await signals_seen(Scripted(get=[settings(OWN_ROW)]))

    assert found.conditions["GpuMemWatch"].severity is Severity.FATAL


@pytest.mark.parametrize(
    "answers",
    [
        {"get": [FORBIDDEN]},
        {"get": [MISSING], "list": [page()]},
        {"get": [settings("")]},
        {"get": [settings("signals = 1")]},
        {"get": [settings("mode = [")]},
    ],
    ids=["no right", "no release", "no rows", "wrong rows", "settings that cannot be read"],
)
async def test_where_no_rows_of_people_can_be_read_the_packaged_ones_count(
    answers: dict[str, list[Any]],
) -> None:
    assert await signals_seen(Scripted(**answers)) == Signals()
