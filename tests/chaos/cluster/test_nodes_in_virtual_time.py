"""Pods and nodes of the simulated cluster in virtual time: where the scheduler places pods, and what becomes
of pods whose node dies, is deleted or boots again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.virtual import Clock, run
from chaos.cluster.virtual_runtime import VirtualTraining
from chaos.cluster.world import LocalCluster, Shape, virtual_cluster
from chaos.controllers.nodes import OUT_OF_SERVICE, UNREACHABLE
from recover.k8s.kinds import NODES, PODS, PYTORCHJOBS
from tests.chaos.cluster import manifests as m
from tests.chaos.cluster.virtual_gangs import (
    NS,
    START,
    gang,
    in_virtual_time,
    nodes_used,
    suspend,
)


def test_pods_that_do_not_fit_wait_with_a_reason_and_are_placed_when_there_is_room() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        client = cluster.client("tester")
        taint = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
        await client.patch(NODES, "n1", {"spec": {"unschedulable": True}})
        await client.patch(NODES, "n2", {"spec": {"taints": [taint]}})
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(5)
        assert nodes_used(cluster) == ["", "n3", "n4", "n5"]
        waiting = next(p for p in cluster.store.objects(PODS) if "nodeName" not in p["spec"])
        scheduled = waiting["status"]["conditions"][0]
        assert scheduled["reason"] == "Unschedulable"
        assert "3 Insufficient nvidia.com/gpu" in scheduled["message"]
        assert "rekindle.dev/unhealthy: device-lost" in scheduled["message"]
        await client.patch(NODES, "n1", {"spec": {"unschedulable": None}})
        await asyncio.sleep(5)
        assert nodes_used(cluster) == ["n1", "n3", "n4", "n5"]

    in_virtual_time(story, gang())


def test_shares_of_one_card_are_placed_until_the_nodes_offer_no_more_of_them() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        share = {"tencent.com/vcuda-core": "60", "tencent.com/vcuda-memory": "20"}
        for name in ("a", "b", "c"):
            await cluster.apply(m.pod(name, {**m.gpu_container(), "resources": {"limits": share}}))
        await asyncio.sleep(5)
        assert nodes_used(cluster) == ["", "n1", "n2"]
        waiting = next(p for p in cluster.store.objects(PODS) if "nodeName" not in p["spec"])
        assert "2 Insufficient tencent.com/vcuda-core" in waiting["status"]["conditions"][0]["message"]

    devices = {"tencent.com/vcuda-core": 100, "tencent.com/vcuda-memory": 64}
    in_virtual_time(story, gang(), Shape(nodes=2, devices=devices))


def test_a_pod_with_a_scheduling_gate_is_not_placed_until_the_gate_is_taken_away() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pod("scan", schedulingGates=[{"name": "rekindle.dev/wait"}]))
        await asyncio.sleep(5)
        assert nodes_used(cluster) == [""]
        await cluster.client("tester").patch(PODS, "scan", {"spec": {"schedulingGates": None}}, namespace=NS)
        await asyncio.sleep(5)
        assert nodes_used(cluster) == ["n1"]

    in_virtual_time(story, gang(ranks=1))


def test_required_node_affinity_keeps_a_pod_off_the_named_hosts() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        await cluster.apply(m.pod("one", affinity=affinity))
        await asyncio.sleep(5)
        assert nodes_used(cluster) == ["n3"]

    in_virtual_time(story, gang(ranks=1))


def test_a_dead_node_is_marked_and_its_pod_stays_terminating_until_it_is_forced() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(30)
        await cluster.crash_node("n2")
        await asyncio.sleep(35)
        assert cluster.store.read(NODES, "n2").body["status"]["conditions"][0]["status"] == "True"
        await asyncio.sleep(20)
        node = cluster.store.read(NODES, "n2").body
        assert node["status"]["conditions"][0]["status"] == "Unknown"
        assert {t["key"] for t in node["spec"]["taints"]} == {UNREACHABLE}
        await suspend(cluster, PYTORCHJOBS, "llm", True)
        await asyncio.sleep(400)
        (stuck,) = cluster.store.objects(PODS)
        assert stuck["spec"]["nodeName"] == "n2"
        assert stuck["status"]["phase"] == "Running"
        meta = stuck["metadata"]
        await cluster.client("tester").delete(PODS, meta["name"], namespace=NS, uid=meta["uid"], grace_s=0)
        await suspend(cluster, PYTORCHJOBS, "llm", False)
        await asyncio.sleep(10)
        assert nodes_used(cluster) == ["n1", "n3", "n4", "n5"]

    in_virtual_time(story, gang())


def test_pods_of_a_dead_node_are_deleted_after_five_minutes_and_freed_by_the_out_of_service_taint() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pod("one"))
        await asyncio.sleep(30)
        await cluster.crash_node("n1")
        await asyncio.sleep(340)
        assert "deletionTimestamp" not in cluster.pod("one")["metadata"]
        await asyncio.sleep(30)
        assert "deletionTimestamp" in cluster.pod("one")["metadata"]
        taints = cluster.store.read(NODES, "n1").body["spec"]["taints"]
        forced = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        await cluster.client("person").patch(NODES, "n1", {"spec": {"taints": [*taints, forced]}})
        await asyncio.sleep(1)
        assert cluster.store.objects(PODS) == []

    in_virtual_time(story, gang(ranks=1))


def test_pods_of_a_deleted_node_are_removed_after_a_delay() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pod("one"))
        await asyncio.sleep(30)
        await cluster.crash_node("n1")
        await cluster.client("person").delete(NODES, "n1")
        await asyncio.sleep(30)
        assert len(cluster.store.objects(PODS)) == 1
        await asyncio.sleep(15)
        assert cluster.store.objects(PODS) == []

    in_virtual_time(story, gang(ranks=1))


def test_a_node_that_boots_again_has_a_new_boot_id_and_no_taint_and_reports_its_lost_containers() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pod("one"))
        await asyncio.sleep(30)
        before = cluster.store.read(NODES, "n1").body["status"]["nodeInfo"]["bootID"]
        await cluster.crash_node("n1")
        await asyncio.sleep(120)
        assert cluster.pod("one")["status"]["phase"] == "Running"
        await cluster.boot_node("n1")
        await asyncio.sleep(1)
        node = cluster.store.read(NODES, "n1").body
        assert node["status"]["nodeInfo"]["bootID"] != before
        assert "taints" not in node["spec"]
        assert cluster.pod("one")["status"]["phase"] == "Failed"

    in_virtual_time(story, gang(ranks=1))


class OneEnds:
    """The container `done` succeeds at once; every other container runs on."""

    def __init__(self) -> None:
        self.started: list[str] = []

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        self.started.append(run.name)
        if run.name != "done":
            await asyncio.sleep(3600)
        return Exit(0)


def test_a_container_that_had_succeeded_keeps_its_end_over_a_reboot() -> None:
    containers = OneEnds()
    pod = m.pod("one", restartPolicy="OnFailure")
    pod["spec"]["containers"].append({"name": "done", "image": "none"})

    async def main(clock: Clock) -> None:
        async with virtual_cluster(clock.now, lambda pod: containers) as cluster:
            await cluster.apply(pod)
            await asyncio.sleep(30)
            before = cluster.pod("one")["status"]["containerStatuses"][1]
            await cluster.crash_node("n1")
            await asyncio.sleep(60)
            await cluster.boot_node("n1")
            await asyncio.sleep(30)
            assert before["state"]["terminated"]["reason"] == "Completed"
            assert cluster.pod("one")["status"]["containerStatuses"][1] == before
            assert containers.started == ["main", "done", "main"]

    run(main, start=START)
