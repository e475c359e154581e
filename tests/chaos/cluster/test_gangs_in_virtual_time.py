"""Gangs on the simulated cluster in virtual time: what job controllers and kubelets do with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from chaos.apiserver.deletion import Deletion, Propagation
from chaos.cluster.containers import Exit
from chaos.cluster.virtual_runtime import VirtualTraining
from chaos.cluster.world import LocalCluster
from recover.k8s.kinds import CONFIGMAPS, JOBS, NODES, PADDLEJOBS, PODS, PYTORCHJOBS, TFJOBS
from tests.chaos.cluster import manifests as m
from tests.chaos.cluster.virtual_gangs import (
    KUBEFLOW,
    NS,
    conditions,
    environment_of,
    gang,
    in_virtual_time,
    nodes_used,
    phases,
    suspend,
)


def test_a_pytorchjob_runs_one_rank_on_each_node_and_steps_together() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(60)
        assert phases(cluster) == ["Running"] * 4
        assert nodes_used(cluster) == ["n1", "n2", "n3", "n4"]
        assert 50 <= training.step <= 60
        assert conditions(cluster, PYTORCHJOBS, "llm") == {"Created": "True", "Running": "True"}
        environment = environment_of(cluster, "llm-worker-2")
        assert (environment["RANK"], environment["WORLD_SIZE"]) == ("3", "4")

    in_virtual_time(story, gang())


def test_a_pytorchjob_that_reaches_its_last_step_succeeds() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(60)
        assert phases(cluster) == ["Succeeded"] * 4
        assert conditions(cluster, PYTORCHJOBS, "llm")["Succeeded"] == "True"

    in_virtual_time(story, gang(steps=20))


@pytest.mark.parametrize("masters", [0, 1])
def test_a_paddlejob_is_told_where_its_ranks_meet_and_how_many_they_are_but_no_ranks(masters: int) -> None:
    """The variables are those of training-operator 1.9.4. With a master the job is a parameter server and its
    trainers."""
    common = {"PYTHONUNBUFFERED": "1", "PADDLE_JOB_ID": "llm", "PADDLE_NNODES": "4"}
    host = {**common, "POD_IP_DUMMY": "from a field", "PADDLE_MASTER": "$(POD_IP_DUMMY):36543"}
    guest = {**common, "PADDLE_MASTER": "127.0.0.1:36543"}
    server, trainer = ({"PADDLE_SERVER_NUM": "1"}, {"PADDLE_TRAINER_NUM": "1"}) if masters else ({}, {})

    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.paddlejob("llm", workers=4 - masters, masters=masters))
        await asyncio.sleep(60)
        assert conditions(cluster, PADDLEJOBS, "llm") == {"Created": "True", "Running": "True"}
        first = "llm-master-0" if masters else "llm-worker-0"
        assert environment_of(cluster, first) == {**host, **server}
        assert environment_of(cluster, "llm-worker-1") == {**guest, **trainer}

    in_virtual_time(story, gang())


def test_a_tfjob_is_told_its_cluster_and_ends_with_its_worker_0() -> None:
    """TF_CONFIG has the fields of training-operator 1.9.4. An evaluator is no part of the cluster."""
    servers = {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"], "ps": ["127.0.0.1:2224"]}

    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.tfjob("llm", {"PS": 1, "Worker": 2, "Evaluator": 1}))
        await asyncio.sleep(60)
        for pod, role, index in (("llm-worker-1", "worker", 1), ("llm-evaluator-0", "evaluator", 0)):
            told = json.loads(environment_of(cluster, pod)["TF_CONFIG"])
            assert told == {
                "cluster": servers,
                "task": {"type": role, "index": index},
                "environment": "cloud",
            }
        cluster.crash_pod("llm-worker-0", Exit(0))
        await asyncio.sleep(30)
        assert conditions(cluster, TFJOBS, "llm")["Succeeded"] == "True"

    in_virtual_time(story, gang())


@pytest.mark.parametrize("resource", [PYTORCHJOBS, JOBS])
def test_suspending_removes_all_pods_and_resuming_starts_new_ones_from_the_step_that_is_asked(
    resource: Any,
) -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        reading = m.gpu_container(envFrom=[{"configMapRef": {"name": "llm-rekindle", "optional": True}}])
        kubeflow = resource == PYTORCHJOBS
        await cluster.apply(
            m.pytorchjob("llm", 3, container=reading) if kubeflow else m.job("llm", 4, container=reading)
        )
        await asyncio.sleep(60)
        old = {pod["metadata"]["uid"] for pod in cluster.store.objects(PODS)}
        await suspend(cluster, resource, "llm", True)
        await asyncio.sleep(1)
        assert cluster.store.objects(PODS) == []
        assert conditions(cluster, resource, "llm")["Suspended"] == "True"
        environment = {"metadata": {"name": "llm-rekindle"}, "data": {"REKINDLE_RESUME_STEP": "1000"}}
        await cluster.client("tester").create(CONFIGMAPS, environment, NS)
        await suspend(cluster, resource, "llm", False)
        await asyncio.sleep(10)
        assert phases(cluster) == ["Running"] * 4
        assert not old & {pod["metadata"]["uid"] for pod in cluster.store.objects(PODS)}
        assert training.step > 1000
        assert conditions(cluster, resource, "llm")["Suspended"] == "False"
        assert not cluster.store.read(resource, "llm", NS).body["status"].get("failed")

    in_virtual_time(story, gang())


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Never", 1, "Failed"),
        ("ExitCode", 1, "Failed"),
        ("ExitCode", 137, "Running"),
        ("OnFailure", 1, "Running"),
    ],
)
@KUBEFLOW
def test_the_restart_policy_decides_what_a_failed_rank_means(
    resource: Any, of_policy: Callable[[str], m.Manifest], policy: str, code: int, expected: str
) -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of_policy(policy))
        await asyncio.sleep(30)
        cluster.crash_pod("llm-worker-1", Exit(code))
        await asyncio.sleep(60)
        assert conditions(cluster, resource, "llm").get(expected) == "True"
        restarts = cluster.pod("llm-worker-1")["status"]["containerStatuses"][0]["restartCount"]
        assert restarts == (1 if policy == "OnFailure" else 0)

    in_virtual_time(story, gang())


@pytest.mark.parametrize(
    ("limit", "restarts", "expected"),
    [(0, 0, "Running"), (0, 1, "Failed"), (1, 1, "Failed"), (2, 1, "Running"), (2, 2, "Failed")],
)
def test_restarts_that_reach_the_backoff_limit_fail_a_kubeflow_job_for_good(
    limit: int, restarts: int, expected: str
) -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        job = m.pytorchjob("llm", workers=3)
        job["spec"]["runPolicy"] = {"backoffLimit": limit}
        await cluster.apply(job)
        await asyncio.sleep(30)
        for number in range(restarts):
            cluster.crash_pod(f"llm-worker-{number}", Exit(1))
        await asyncio.sleep(60)
        assert conditions(cluster, PYTORCHJOBS, "llm").get(expected) == "True"

    in_virtual_time(story, gang())


def test_a_rank_that_restarts_in_place_leaves_the_gang_standing_still() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(30)
        cluster.crash_pod("llm-worker-1", Exit.out_of_memory())
        await asyncio.sleep(1)
        stuck_at = training.step
        await asyncio.sleep(300)
        assert training.step == stuck_at
        status = cluster.pod("llm-worker-1")["status"]["containerStatuses"][0]
        assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
        assert status["lastState"]["terminated"]["exitCode"] == 137

    in_virtual_time(story, gang())


def test_a_failed_pod_of_a_job_is_kept_counted_and_replaced_after_ten_seconds() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.job("llm", 4))
        await asyncio.sleep(30)
        name = cluster.store.objects(PODS)[0]["metadata"]["name"]
        cluster.crash_pod(name, Exit(1))
        await asyncio.sleep(9)
        assert sorted(phases(cluster)) == ["Failed", "Running", "Running", "Running"]
        await asyncio.sleep(3)
        assert sorted(phases(cluster)) == ["Failed", *["Running"] * 4]
        assert cluster.store.read(JOBS, "llm", NS).body["status"]["failed"] == 1

    in_virtual_time(story, gang())


def test_a_job_without_backoff_is_failed_for_good_by_one_pod() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.job("llm", 4, backoff_limit=0))
        await asyncio.sleep(30)
        cluster.crash_pod(cluster.store.objects(PODS)[0]["metadata"]["name"], Exit(1))
        await asyncio.sleep(5)
        await suspend(cluster, JOBS, "llm", True)
        await suspend(cluster, JOBS, "llm", False)
        await asyncio.sleep(100)
        assert conditions(cluster, JOBS, "llm")["Failed"] == "True"
        assert phases(cluster) == ["Failed"]

    in_virtual_time(story, gang())


def test_a_job_completes_when_every_index_has_succeeded() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.job("llm", 4))
        await asyncio.sleep(60)
        assert conditions(cluster, JOBS, "llm")["Complete"] == "True"
        assert cluster.store.read(JOBS, "llm", NS).body["status"]["completedIndexes"] == "0,1,2,3"

    in_virtual_time(story, gang(steps=20))


def test_a_job_without_completions_starts_no_pod_after_a_success_and_completes_when_all_have_ended() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        job = m.job("llm", 2)
        job["spec"] = {"parallelism": 2, "template": job["spec"]["template"]}
        await cluster.apply(job)
        await asyncio.sleep(30)
        first, second = (pod["metadata"]["name"] for pod in cluster.store.objects(PODS))
        cluster.crash_pod(first, Exit(0))
        await asyncio.sleep(30)
        assert sorted(phases(cluster)) == ["Running", "Succeeded"]
        assert "Complete" not in conditions(cluster, JOBS, "llm")
        cluster.crash_pod(second, Exit(1))
        await asyncio.sleep(30)
        assert sorted(phases(cluster)) == ["Failed", "Succeeded"]
        assert conditions(cluster, JOBS, "llm")["Complete"] == "True"

    in_virtual_time(story, gang(2))


@pytest.mark.parametrize(
    ("propagation", "left"), [(Propagation.BACKGROUND, []), (Propagation.ORPHAN, ["Running"] * 4)]
)
def test_a_deleted_job_takes_its_pods_with_it_or_leaves_them_running(
    propagation: Propagation, left: list[str]
) -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.job("llm", 4))
        await asyncio.sleep(30)
        await cluster.client("person").remove(JOBS, "llm", Deletion(propagation=propagation), NS)
        await asyncio.sleep(5)
        assert cluster.store.objects(JOBS) == []
        assert phases(cluster) == left
        assert not any("ownerReferences" in pod["metadata"] for pod in cluster.store.objects(PODS))

    in_virtual_time(story, gang())


def test_a_job_deleted_in_the_foreground_goes_after_its_pods() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.job("llm", 4))
        await asyncio.sleep(30)
        await cluster.crash_node("n2")
        await cluster.client("person").remove(JOBS, "llm", Deletion(propagation=Propagation.FOREGROUND), NS)
        await asyncio.sleep(5)
        assert [pod["spec"]["nodeName"] for pod in cluster.store.objects(PODS)] == ["n2"]
        assert len(cluster.store.objects(JOBS)) == 1
        (stuck,) = cluster.store.objects(PODS)
        await cluster.client("person").delete(PODS, stuck["metadata"]["name"], namespace=NS, grace_s=0)
        await asyncio.sleep(1)
        assert cluster.store.objects(JOBS) == []

    in_virtual_time(story, gang())


@KUBEFLOW
@pytest.mark.parametrize(("policy", "failed"), [("Never", True), ("OnFailure", False)])
def test_deleting_a_running_pod_fails_a_tfjob_and_every_job_that_never_restarts(
    resource: Any, of_policy: Callable[[str], m.Manifest], policy: str, failed: bool
) -> None:
    failed = failed or resource == TFJOBS

    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of_policy(policy))
        await asyncio.sleep(30)
        await cluster.client("person").delete(PODS, "llm-worker-0", namespace=NS)
        await asyncio.sleep(30)
        assert ("Failed" in conditions(cluster, resource, "llm")) is failed
        assert ("llm-worker-0" in [p["metadata"]["name"] for p in cluster.store.objects(PODS)]) is not failed

    in_virtual_time(story, gang())


@KUBEFLOW
@pytest.mark.parametrize(("policy", "failed"), [("Never", True), ("OnFailure", False)])
def test_the_operator_replaces_a_failed_pod_of_a_kubeflow_job_unless_the_policy_is_never(
    resource: Any, of_policy: Callable[[str], m.Manifest], policy: str, failed: bool
) -> None:
    """This also happens with OnFailure, under which a kubelet restarts containers and fails a pod only as a
    whole."""

    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(of_policy(policy))
        await asyncio.sleep(30)
        old = cluster.pod("llm-worker-1")["metadata"]["uid"]
        evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
        kubelet = cluster.client("kubelet")
        await kubelet.patch(PODS, "llm-worker-1", evicted, namespace=NS, subresource="status")
        await asyncio.sleep(60)
        held = [kind for kind, value in conditions(cluster, resource, "llm").items() if value == "True"]
        assert held == ["Created", "Failed" if failed else "Running"]
        assert (cluster.pod("llm-worker-1")["metadata"]["uid"] == old) is failed

    in_virtual_time(story, gang())


def test_the_same_story_gives_the_same_objects_byte_for_byte() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(30)
        await cluster.crash_node("n2")
        await asyncio.sleep(100)

    runs = [in_virtual_time(story, gang()) for _ in range(2)]
    states = [(r.store.version, r.store.audit, [r.store.objects(k) for k in (PODS, NODES)]) for r in runs]
    assert states[0] == states[1]


def test_a_cluster_that_nobody_touches_writes_nothing_but_leases() -> None:
    async def story(cluster: LocalCluster, training: VirtualTraining) -> None:
        await cluster.apply(m.pytorchjob("llm", workers=3))
        await asyncio.sleep(60)
        seen = len(cluster.store.audit)
        await asyncio.sleep(3600)
        assert {entry.resource.plural for entry in cluster.store.audit[seen:]} == {"leases"}

    in_virtual_time(story, gang())
