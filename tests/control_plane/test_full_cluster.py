"""A gang needs all eight nodes of its cluster, and no agent reports: if Rekindle avoids a node without a
proof, the gang then waits for that node.

Nobody reads the steps here, so the checkpoint that a scan finds shows progress.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from recover.k8s.kinds import INCIDENTS, NODES, PYTORCHJOBS
from tests.control_plane.cases import (
    cordons,
    incident_of,
    living,
    no_trouble,
    nodes_of,
    pytorchjob,
    recoveries,
    seconds_later,
    uids,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.refusing import refusing
from tests.control_plane.scans import answered, with_checkpoints
from tests.control_plane.stage import NAMESPACE, RealStage, gpu_node, raised

pytestmark = pytest.mark.control_plane

EIGHT = {f"n{number}" for number in range(1, 9)}
CRASHES = 10
WORDS = "nodes are changed by their owners only"
ATTEMPTS = 3
"""Default limit of attempts for one cause without progress."""


@asynccontextmanager
async def full(plane: ControlPlane, *, checkpoints: bool) -> AsyncIterator[tuple[RealStage, list[Any]]]:
    """Yields a stage and the gang's pods, one on each node."""
    settings = ["mode=recover"]
    async with raised(plane, nodes=len(EIGHT), settings=settings, agents=0, reporting=False) as stage:
        job = pytorchjob("llm", "OnFailure", workers=len(EIGHT) - 1)
        await stage.create(PYTORCHJOBS, with_checkpoints(job) if checkpoints else job, NAMESPACE)
        pods = await stage.running("llm", len(EIGHT))
        assert nodes_of(pods) == EIGHT
        await seconds_later(pods)
        yield stage, pods


async def newest(stage: RealStage) -> Any:
    """Returns the status of the gang's last Recovery, or an empty mapping if there is none."""
    found = await recoveries(stage, "llm")
    last = max(found, key=lambda one: int(one["spec"]["number"]), default=None)
    return last["status"] if last else {}


async def is_at(stage: RealStage, phase: str, reason: str = "") -> Any:
    """Returns the status of the last Recovery if it is in that phase, and has that reason if a reason is
    given; otherwise None."""
    status = await newest(stage)
    return status if status.get("phase") == phase and reason in ("", status.get("reason")) else None


async def trains_again(stage: RealStage, old: list[Any]) -> list[Any]:
    """Returns the new pods: all ranks run, and the Recovery waits for their first step."""
    new = await stage.running("llm", len(EIGHT), but=uids(old))
    await stage.until("Verifying", partial(is_at, stage, "Verifying"))
    await seconds_later(new)
    return new


async def test_ten_crashes_with_a_newer_checkpoint_between_each_end_with_the_gang_running(
    training: ControlPlane,
) -> None:
    async with full(training, checkpoints=True) as (stage, pods):
        for number in range(1, CRASHES + 1):
            await stage.end(pods[number % len(pods)], exit_code=1)
            await answered(stage, 100 * number)
            pods = await trains_again(stage, pods)

        assert nodes_of(pods) == EIGHT
        assert await cordons(stage) == set()
        assert {r["status"]["phase"] for r in await recoveries(stage, "llm")} <= {"Verifying", "Succeeded"}
        no_trouble(stage)


async def test_the_fourth_crash_without_a_newer_checkpoint_ends_as_a_crash_loop_and_waits_for_no_node(
    training: ControlPlane,
) -> None:
    async with full(training, checkpoints=True) as (stage, pods):
        for number in range(1, ATTEMPTS + 1):
            await stage.end(pods[number], exit_code=1)
            await answered(stage, 100)
            pods = await trains_again(stage, pods)

        await stage.end(pods[0], exit_code=1)
        await answered(stage, 100)
        status = await stage.until("CrashLoop", partial(is_at, stage, "Escalated", "CrashLoop"))

        assert str(ATTEMPTS) in status["message"]
        assert await is_stopped(stage)
        assert await living(stage, "llm") == []
        assert await cordons(stage) == set()
        no_trouble(stage)


async def is_stopped(stage: RealStage) -> bool:
    job = await stage.get(PYTORCHJOBS, "llm", NAMESPACE)
    return bool(job["spec"].get("runPolicy", {}).get("suspend"))


async def test_four_gpus_that_die_on_four_nodes_are_no_crash_loop(training: ControlPlane) -> None:
    """Each broken node boots again, and a person returns it to service: only then the gang has room."""
    async with full(training, checkpoints=False) as (stage, pods):
        for node in ("n1", "n2", "n3", "n4"):
            await stage.covered(node)
            await stage.xid_79(node)
            await stage.until("word of the missing room", partial(is_at, stage, "Blocked", "NoCapacity"))
            assert await cordons(stage) == {node}

            await stage.boots(node, f"second-boot-of-{node}")
            await stage.uncordons(node)
            pods = await trains_again(stage, pods)

        assert nodes_of(pods) == EIGHT
        assert {r["status"]["phase"] for r in await recoveries(stage, "llm")} <= {"Verifying", "Succeeded"}
        no_trouble(stage)


async def test_a_gang_goes_on_once_the_node_that_went_down_under_it_has_booted_again(
    training: ControlPlane,
) -> None:
    """The peers of the rank end while nobody hears from its node."""
    async with full(training, checkpoints=False) as (stage, old):
        await stage.dies("n3")
        peer = next(pod for pod in old if pod["spec"]["nodeName"] != "n3")
        await stage.end(peer, exit_code=1)
        await stage.until("stopped gang", partial(is_stopped, stage))

        await stage.boots("n3", "second-boot-of-n3")
        new = await trains_again(stage, old)

        assert nodes_of(new) == EIGHT
        assert await cordons(stage) == set()
        (recovery,) = await recoveries(stage, "llm")
        assert await incident_of(stage, recovery)
        no_trouble(stage)


async def test_a_gang_is_restarted_although_a_policy_refuses_the_quarantine_of_its_broken_node(
    training: ControlPlane,
) -> None:
    """No cordon keeps the new pods off that node, so the gang itself must avoid the node, and waits for
    another node."""
    async with (
        full(training, checkpoints=False) as (stage, old),
        refusing(stage, NODES, WORDS, prefix="n5"),
    ):
        await stage.covered("n5")
        await stage.xid_79("n5")
        (rank,) = (pod for pod in old if pod["spec"]["nodeName"] == "n5")
        await stage.end(rank, exit_code=1)
        await stage.until("word of the missing room", partial(is_at, stage, "Blocked", "NoCapacity"))
        await stage.until("Incident that tells of the refusal", partial(tells_of_the_refusal, stage, "n5"))

        await stage.create(NODES, gpu_node("n9"))
        new = await trains_again(stage, old)

        assert nodes_of(new) == EIGHT - {"n5"} | {"n9"}
        assert await cordons(stage) == set()


async def tells_of_the_refusal(stage: RealStage, node: str) -> bool:
    return any(
        record["target"] == node and record["outcome"] == "refused" and WORDS in record["message"]
        for incident in await stage.all(INCIDENTS)
        for record in incident.get("status", {}).get("actions", [])
    )
