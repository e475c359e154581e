"""Gangs that cannot continue yet, because there is no room or their old pods take long to end. Time, or a
person, removes the obstacle, and then the gangs continue by themselves."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from recover.k8s.kinds import PYTORCHJOBS
from tests.control_plane.cases import (
    cordons,
    end_at_last,
    ended,
    indexed_job,
    living,
    no_trouble,
    nodes_of,
    pytorchjob,
    recovered,
    trained,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import now, raised

pytestmark = pytest.mark.control_plane

SECONDS = 90.0
"""Limit in seconds until a wait for room is reported, on a busy machine. The start's own deadline is 600
s."""


async def test_a_gang_that_does_not_fit_is_not_started_and_starts_by_itself_once_its_node_is_back(
    training: ControlPlane,
) -> None:
    """The gang has three ranks on three nodes, and there is no spare node."""
    async with raised(training, nodes=3, settings=["mode=recover"], agents=0) as stage:
        job = pytorchjob("llm", "OnFailure", workers=2, dying="143")
        old = await trained(stage, job, PYTORCHJOBS, ranks=3)
        bad = old[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        blocked = await ended(stage, "llm", "Blocked", "NoCapacity")
        await asyncio.sleep(2)  # a start would be visible by now

        assert waited_s(blocked) < SECONDS
        assert bad in blocked["status"]["message"]
        assert await living(stage, "llm") == []
        assert await cordons(stage) == {bad}

        await stage.boots(bad, "second-boot")
        await stage.uncordons(bad)
        recovery = await recovered(stage, "llm", old)

        assert recovery["status"]["attempt"] == 1
        assert nodes_of(await living(stage, "llm")) == {"n1", "n2", "n3"}
        no_trouble(stage)


def waited_s(recovery: Any) -> float:
    """Returns the time in seconds from the stop until the Recovery reported that there is no room."""
    at = {entered["phase"]: datetime.fromisoformat(entered["at"]) for entered in recovery["status"]["phases"]}
    return (at["Blocked"] - at["Stopping"]).total_seconds()


async def test_pods_that_end_slowly_are_waited_for_as_long_as_they_may_take_and_then_the_gang_goes_on(
    control_plane: ControlPlane,
) -> None:
    """The pods of one gang have 1 s to end, and do not end; those of the other gang have 300 s."""
    settings = ["mode=recover", "timing.stop_deadline_s=2", "budgets.quarantined_percent_max=100"]
    async with raised(control_plane, nodes=6, settings=settings, agents=0) as stage:
        old = {
            name: await trained(stage, slow(name, grace_s))
            for name, grace_s in (("late", 1), ("patient", 300))
        }
        for pods in old.values():
            await stage.xid_79(pods[0]["spec"]["nodeName"])

        blocked = await ended(stage, "late", "Blocked", "PodsStuck")
        assert all(pod["metadata"]["name"] in blocked["status"]["message"] for pod in old["late"])
        patient = await ended(stage, "patient", "Stopping")
        deadline = datetime.fromisoformat(patient["status"]["deadline"])
        assert (deadline - now()).total_seconds() > 200

        for pods in old.values():
            await end_at_last(stage, pods)
        found = await asyncio.gather(*(recovered(stage, name, pods) for name, pods in old.items()))

        assert [recovery["status"]["attempt"] for recovery in found] == [1, 1]
        no_trouble(stage)


def slow(name: str, grace_s: int) -> dict[str, Any]:
    return indexed_job(name, dying="never", pod={"terminationGracePeriodSeconds": grace_s})
