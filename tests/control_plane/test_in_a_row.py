"""One gang is recovered several times in a row, and the framework must have counted none of the recoveries.

REKINDLE_RECOVERIES sets how many recoveries there are (default 2). `pytest -s` shows the framework's own
counters before the first recovery and after each one, and the settings that allow the quarantine of so many
nodes in so short a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, PADDLEJOBS, PYTORCHJOBS, RECOVERIES
from tests.control_plane.cases import indexed_job, paddlejob, pytorchjob, uids
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

RECOVERIES_IN_A_ROW = int(os.environ.get("REKINDLE_RECOVERIES", "2"))
RANKS = 4
SETTINGS = [
    "mode=recover",
    "budgets.quarantined_percent_max=100",
    "budgets.pool_percent_max=100",
    "budgets.brake_percent=100",
]
STEPS = 100
"""Number of steps that each attempt makes before its node fails."""


async def test_an_indexed_job_is_recovered_again_and_again_and_counts_nothing(
    control_plane: ControlPlane,
) -> None:
    await recover_in_a_row(control_plane, JOBS, indexed_job("llm", ranks=RANKS), job_counters)


async def test_a_pytorchjob_is_recovered_again_and_again_and_counts_nothing(training: ControlPlane) -> None:
    await recover_in_a_row(
        training, PYTORCHJOBS, pytorchjob("llm", "OnFailure", workers=RANKS - 1), kubeflow_counters
    )


async def test_a_paddlejob_is_recovered_again_and_again_and_counts_nothing(training: ControlPlane) -> None:
    await recover_in_a_row(
        training, PADDLEJOBS, paddlejob("llm", "OnFailure", workers=RANKS), kubeflow_counters
    )


async def recover_in_a_row(
    plane: ControlPlane, resource: Resource, job: Any, counters: Callable[[Any], dict[str, Any]]
) -> None:
    nodes = RANKS + RECOVERIES_IN_A_ROW
    print(f"\n{RECOVERIES_IN_A_ROW} recoveries of one {resource.kind} of {RANKS} pods on {nodes} nodes")
    print("settings:", *SETTINGS)
    async with raised(plane, nodes=nodes, settings=SETTINGS, agents=nodes) as stage:
        await stage.create(resource, job, NAMESPACE)
        pods = await stage.running("llm", RANKS)
        before = await at_rest(stage, resource, counters)
        print("before :", json.dumps(before))
        for number in range(1, RECOVERIES_IN_A_ROW + 1):
            first = STEPS * (number - 1) + 1
            for pod in pods:
                await stage.steps(pod, first=first, last=first + STEPS - 1)
            await stage.xid_79(pods[0]["spec"]["nodeName"])
            pods = await stage.running("llm", RANKS, but=uids(pods))
            await stage.steps(pods[0], first=first + STEPS, last=first + STEPS)
            await succeeded(stage, number)
            after = await at_rest(stage, resource, counters, like=before)
            print(f"after {number}:", json.dumps(after))
            assert after == before
            assert all(restarts(pod) == 0 for pod in pods)


async def succeeded(stage: RealStage, number: int) -> None:
    async def done() -> bool:
        phases = {r["spec"]["number"]: r["status"]["phase"] for r in await stage.all(RECOVERIES, NAMESPACE)}
        return phases == dict.fromkeys(range(1, number + 1), "Succeeded")

    await stage.until(f"Succeeded, {number} times", done)


async def at_rest(
    stage: RealStage,
    resource: Resource,
    counters: Callable[[Any], dict[str, Any]],
    *,
    like: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the framework's counters once all its pods run and, if `like` is given, once the counters equal
    it; the framework updates them a moment after the pods run. Earlier values are printed."""
    said: dict[str, Any] = {}

    async def rests() -> bool:
        nonlocal said
        found = counters(await stage.get(resource, "llm", NAMESPACE))
        if found != said:
            print("        :", json.dumps(found))
        said = found
        return found["active"] == RANKS and found == (like or found)

    await stage.until(f"{RANKS} active pods, and all else as before", rests)
    return said


def job_counters(job: Any) -> dict[str, Any]:
    """Returns everything on which a Job's backoff and end depend. Fields that come and go with suspend are
    left out."""
    status = job.get("status", {})  # its controller may not have reconciled yet
    counted = ("failed", "succeeded", "completedIndexes", "failedIndexes", "uncountedTerminatedPods")
    return {
        "active": status.get("active"),
        **{name: status.get(name) or None for name in counted},
        "conditions": holding(status),
    }


def kubeflow_counters(job: Any) -> dict[str, Any]:
    status = job.get("status", {})  # its controller may not have reconciled yet
    replicas = {
        role: {name: count for name, count in counts.items() if isinstance(count, int)}
        for role, counts in status.get("replicaStatuses", {}).items()
    }
    return {
        "active": sum(counts.get("active", 0) for counts in replicas.values()),
        "replicaStatuses": replicas,
        "conditions": holding(status),
    }


def holding(status: Any) -> list[str]:
    return sorted(c["type"] for c in status.get("conditions", []) if c["status"] == "True")


def restarts(pod: Any) -> int:
    return sum(container["restartCount"] for container in pod["status"].get("containerStatuses", []))
