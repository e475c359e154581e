"""JobSets on the simulated cluster in virtual time behave as tests/control_plane/test_jobset.py measured it
with real JobSets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.cluster.containers import Exit
from chaos.cluster.job_objects import jobset
from chaos.cluster.virtual_runtime import VirtualTraining
from chaos.cluster.world import LocalCluster
from recover.k8s.kinds import JOBS, JOBSETS, PODS
from tests.chaos.cluster.virtual_gangs import NS, conditions, gang, in_virtual_time, phases

POD = {
    "containers": [
        {"name": "train", "image": "training", "resources": {"limits": {"nvidia.com/gpu": 1}}},
    ]
}


def of(ranks: int = 3, **more: Any) -> dict[str, Any]:
    return jobset({"name": "llm", "namespace": NS}, POD, ranks=ranks, **more)


def status(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.store.read(JOBSETS, "llm", NS).body.get("status", {})
    return found


async def suspend(cluster: LocalCluster, value: bool) -> None:
    await cluster.client("tester").patch(JOBSETS, "llm", {"spec": {"suspend": value}}, namespace=NS)


def crash(cluster: LocalCluster) -> None:
    cluster.crash_pod(cluster.store.objects(PODS, NS)[0]["metadata"]["name"], Exit(1), NS)


def test_its_pods_run_and_name_the_set_and_its_restart() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of())
        await asyncio.sleep(60)
        assert phases(cluster) == ["Running"] * 3
        assert training.step > 40
        labels = cluster.store.objects(PODS, NS)[0]["metadata"]["labels"]
        assert labels["jobset.sigs.k8s.io/jobset-name"] == "llm"
        assert labels["jobset.sigs.k8s.io/restart-attempt"] == "0"

    in_virtual_time(story, gang(3))


def test_suspending_ends_its_pods_and_resuming_makes_new_ones_of_the_same_jobs() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of())
        await asyncio.sleep(30)
        (before,) = (job["metadata"]["uid"] for job in cluster.store.objects(JOBS, NS))
        await suspend(cluster, True)
        await asyncio.sleep(60)
        assert phases(cluster) == []
        assert conditions(cluster, JOBSETS, "llm")["Suspended"] == "True"
        await suspend(cluster, False)
        await asyncio.sleep(30)
        assert phases(cluster) == ["Running"] * 3
        assert [job["metadata"]["uid"] for job in cluster.store.objects(JOBS, NS)] == [before]

    in_virtual_time(story, gang(3))


@pytest.mark.parametrize(("wanted", "jobs_at_first"), [("Ready", 2), ("Complete", 1)])
def test_jobs_that_wait_for_others_are_made_when_those_run_or_are_complete(
    wanted: str, jobs_at_first: int
) -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        job = of(1)
        (first,) = job["spec"]["replicatedJobs"]
        later = {**first, "name": "later", "dependsOn": [{"name": first["name"], "status": wanted}]}
        job["spec"]["replicatedJobs"] = [first, later]
        await cluster.apply(job)
        await asyncio.sleep(10)
        assert len(cluster.store.objects(JOBS, NS)) == jobs_at_first
        await asyncio.sleep(60)
        assert len(cluster.store.objects(JOBS, NS)) == 2

    in_virtual_time(story, gang(1, steps=20))


def test_a_higher_number_of_restarts_makes_its_jobs_again_and_counts_none() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of(max_restarts=0))
        await asyncio.sleep(30)
        await suspend(cluster, True)
        body = {"status": {"restarts": 1}}
        await cluster.client("tester").patch(JOBSETS, "llm", body, namespace=NS, subresource="status")
        await asyncio.sleep(60)
        (job,) = cluster.store.objects(JOBS, NS)
        assert job["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"
        assert job["spec"]["suspend"]
        await suspend(cluster, False)
        await asyncio.sleep(60)
        assert phases(cluster) == ["Running"] * 3
        assert "restartsCountTowardsMax" not in status(cluster)

    in_virtual_time(story, gang(3))


@pytest.mark.parametrize("allowed", [None, 0])
def test_a_failed_pod_fails_it_for_good_where_no_restart_is_allowed(allowed: int | None) -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of(max_restarts=allowed))
        await asyncio.sleep(30)
        crash(cluster)
        await asyncio.sleep(1)
        assert "terminalState" not in status(cluster)
        await asyncio.sleep(60)
        assert status(cluster)["terminalState"] == "Failed"

    in_virtual_time(story, gang(3))


def test_a_failed_pod_restarts_all_of_it_where_that_is_allowed() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of(max_restarts=2))
        await asyncio.sleep(30)
        crash(cluster)
        await asyncio.sleep(90)
        assert phases(cluster) == ["Running"] * 3
        assert (status(cluster)["restarts"], status(cluster)["restartsCountTowardsMax"]) == (1, 1)

    in_virtual_time(story, gang(3))
