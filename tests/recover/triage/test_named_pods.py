"""Whom the controller names to an agent: pods whose job says something, or all of its gangs' in a crowd."""

from __future__ import annotations

import msgspec

from detectors.wire.contract import Coverage, CoverageState, Source
from recover.model import World
from recover.model.actions import Patch
from recover.triage.nodehealths import upkeep
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


def test_of_a_job_that_did_not_opt_in_none_is_named() -> None:
    assert named(crowded(running(opted_in=False).world(), "n0")) == {}
