"""Disturbances that affect only one object, one kind or one node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.apiserver.disturbance import StandingRefusal
from chaos.cluster.virtual_runtime import LINGERS_S, VirtualTraining
from chaos.cluster.world import LocalCluster, Shape
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import CONFIGMAPS, NODES, PODS
from tests.chaos.cluster import manifests as m
from tests.chaos.cluster.virtual_gangs import NS, gang, in_virtual_time, nodes_used

TAINT = {"key": "a.b/c", "effect": "PreferNoSchedule"}
AWAY_FROM_N1 = {
    "weight": 100,
    "preference": {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]
    },
}


def test_a_refusal_that_is_bound_to_one_object_leaves_all_others_alone() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        client = cluster.client("tester")
        why = "the webhook denied the request"
        client.disturbance.standing = [StandingRefusal(why=why, verb="patch", resource=NODES, name="n2")]
        body = {"metadata": {"labels": {"x": "y"}}}
        for _ in range(2):
            with pytest.raises(ApiError, match="the webhook"):
                await client.patch(NODES, "n2", body)
        await client.patch(NODES, "n1", body)
        await cluster.client("another").patch(NODES, "n2", body)
        assert client.disturbance.refused == {why: 2}

    in_virtual_time(story, gang())


def test_a_refusal_may_be_bound_to_a_namespace() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        client = cluster.client("tester")
        client.disturbance.standing = [
            StandingRefusal(why="it ends", verb="create", resource=CONFIGMAPS, namespace="kube-public")
        ]
        with pytest.raises(ApiError, match="it ends"):
            await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, "kube-public")
        await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, NS)

    in_virtual_time(story, gang())


def test_watches_of_one_kind_may_be_late_while_others_are_not() -> None:
    seen: list[tuple[str, float]] = []

    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        client, loop = cluster.client("tester"), asyncio.get_running_loop()
        client.disturbance.lag_of_s[NODES] = 30.0

        async def follow(resource: Any, name: str) -> None:
            async for event in client.watch(resource, resource_version="0", timeout_s=300):
                if f'"{name}"'.encode() in bytes(event.object):
                    seen.append((resource.plural, loop.time() - began))
                    return

        watches = [asyncio.create_task(follow(r, "late")) for r in (NODES, CONFIGMAPS)]
        await asyncio.sleep(40)
        began = loop.time()
        await cluster.client("another").create(NODES, {"metadata": {"name": "late"}})
        await cluster.client("another").create(CONFIGMAPS, {"metadata": {"name": "late"}}, NS)
        await asyncio.gather(*watches)

    in_virtual_time(story, gang())
    assert dict(seen)["configmaps"] < 1
    assert dict(seen)["nodes"] >= 30


def test_a_node_with_a_soft_taint_is_taken_only_where_no_other_fits() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.client("tester").patch(NODES, "n1", {"spec": {"taints": [TAINT]}})
        await cluster.apply(m.pod("first", m.gpu_container()))
        await asyncio.sleep(5)
        await cluster.apply(m.pod("second", m.gpu_container()))
        await asyncio.sleep(5)
        assert nodes_used(cluster) == ["n1", "n2"]
        assert cluster.pod("first")["spec"]["nodeName"] == "n2"

    in_virtual_time(story, gang(), Shape(nodes=2))


def test_preferred_affinity_keeps_a_pod_off_a_node_only_while_another_fits() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [AWAY_FROM_N1]}}
        for name in ("first", "second"):
            pod = m.pod(name, m.gpu_container())
            await cluster.apply({**pod, "spec": {**pod["spec"], "affinity": affinity}})
            await asyncio.sleep(5)
        assert cluster.pod("first")["spec"]["nodeName"] == "n2"
        assert cluster.pod("second")["spec"]["nodeName"] == "n1"

    in_virtual_time(story, gang(), Shape(nodes=2))


def test_a_node_whose_clock_is_ahead_writes_its_own_times() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pod("first", m.gpu_container()))
        await asyncio.sleep(5)
        pod = cluster.pod("first")
        (status,) = pod["status"]["containerStatuses"]
        assert pod["metadata"]["creationTimestamp"].startswith("2026-11-21T09:00")
        assert status["state"]["running"]["startedAt"].startswith("2026-11-21T09:10")

    in_virtual_time(story, gang(), Shape(nodes=1, clock_leads_s={"n1": 600.0}))


def test_a_joining_node_is_unknown_until_it_is_booted() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        assert [node["metadata"]["name"] for node in cluster.store.objects(NODES)] == ["n1"]
        await cluster.boot_node("n2")
        assert len(cluster.store.objects(NODES)) == 2

    in_virtual_time(story, gang(), Shape(nodes=2, joining=frozenset({"n2"})))


def test_a_container_that_lingers_ends_only_so_long_after_its_deletion() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        pod = m.pod("first", m.gpu_container())
        pod["metadata"]["annotations"] = {LINGERS_S: "20"}
        await cluster.apply(pod)
        await asyncio.sleep(5)
        await cluster.client("tester").delete(PODS, "first", namespace=NS)
        await asyncio.sleep(15)
        assert len(cluster.store.objects(PODS)) == 1
        await asyncio.sleep(10)
        assert cluster.store.objects(PODS) == []

    in_virtual_time(story, gang())
