"""Tests which pods the controller names to an agent: pods whose job has an annotation for the agent, or on
a crowded node all pods of its gangs."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import PODS_MAX, Coverage, CoverageState, Fault, Severity, Source
from recover.model import NamespaceView, Pod, PodPhase, World
from recover.model.actions import Patch
from recover.policy.step_words import STEP_TEMPLATE
from recover.triage.nodehealths import upkeep
from tests.acting import recovering
from tests.builders import NOW, Worlds, cluster, gang


def crowded(world: World, node: str) -> World:
    why = "more than 256 containers run: the logs of some pods without devices are not read"
    health = world.health[node]
    logs = Coverage(source=Source.LOGS, state=CoverageState.COVERED, since=NOW, why=why)
    others = [one for one in health.status.coverage if one.source is not Source.LOGS]
    status = msgspec.structs.replace(health.status, coverage=[*others, logs])
    told = msgspec.structs.replace(health, status=status)
    return msgspec.structs.replace(world, health={**world.health, node: told})


def named(world: World) -> dict[str, list[str]]:
    return {
        patch.name: [pod["uid"] for pod in patch.body["spec"]["pods"]]
        for patch in upkeep(world).actions
        if isinstance(patch, Patch)
    }


def running(*, opted_in: bool) -> Worlds:
    return cluster(nodes=2).running(gang(ranks=2, opted_in=opted_in))


def test_an_agent_that_follows_all_logs_is_told_of_no_pod_whose_job_says_nothing() -> None:
    assert named(running(opted_in=True).world()) == {}


def test_an_agent_that_leaves_logs_out_is_told_whose_come_first() -> None:
    world = crowded(running(opted_in=True).world(), "n0")

    (pods,) = named(world).values()
    assert pods == [pod.uid for pod in world.pods("llm-uid") if pod.node == "n0"]


def test_an_agent_that_publishes_not_all_pods_is_told_whose_come_first() -> None:
    world = running(opted_in=True)
    status = msgspec.structs.replace(world.health["n0"].status, pods_left_out=True)
    world.health["n0"] = msgspec.structs.replace(world.health["n0"], status=status)

    assert named(world.world()) == {"n0": ["llm-0-uid"]}


def test_of_a_job_that_did_not_opt_in_none_is_named() -> None:
    assert named(crowded(running(opted_in=False).world(), "n0")) == {}


def strangers(world: Worlds, *, jobs: int, pods: int, on: str, opted_in: bool = False) -> Worlds:
    """Adds jobs of another namespace on this node. Their pods never ran, and have uids that sort before
    all others."""
    world.namespaces["others"] = NamespaceView("others")
    for number in range(jobs):
        job = gang(f"x{number}", ranks=pods, opted_in=opted_in, annotations={STEP_TEMPLATE: "step {step}"})
        ref = msgspec.structs.replace(job.ref, namespace="others")
        world.gangs[ref.uid] = msgspec.structs.replace(job, ref=ref)
        world.pods[ref.uid] = {
            uid: Pod("others", uid, uid, "1", ref.uid, node=on, phase=PodPhase.PENDING)
            for uid in (f"a-{number}-{rank}" for rank in range(pods))
        }
    return world


@pytest.mark.parametrize("opted_in", [False, True])
@pytest.mark.parametrize(("jobs", "pods"), [(1, 68), (68, 1)])
def test_pods_of_another_namespace_cost_no_rank_its_place_among_the_named(
    jobs: int, pods: int, opted_in: bool
) -> None:
    mine = gang(ranks=2, annotations={STEP_TEMPLATE: "it {step}"})
    world = strangers(cluster(nodes=2).running(mine), jobs=jobs, pods=pods, on="n0", opted_in=opted_in)

    found = named(world.world())

    assert len(found["n0"]) == PODS_MAX
    assert "llm-0-uid" in found["n0"]
    assert found["n0"] == sorted(found["n0"])


def test_a_pod_whose_next_checkpoint_is_awaited_is_named_before_all_others() -> None:
    world = cluster(12).running(gang()).tells(rank=0, step=90, at=NOW - timedelta(hours=9))
    world.finding(on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    recovering(world)

    found = named(strangers(world.later(30), jobs=1, pods=68, on="n0", opted_in=True).world())

    assert "llm-0-uid" in found["n0"]
