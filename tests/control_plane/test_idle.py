"""While a gang trains and nothing in the cluster is wrong, agents and controller write nothing but the lease.

REKINDLE_IDLE_S sets how many seconds are watched (default 15). `pytest -s` shows the counts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import Any

import pytest

from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, JOBS, LEASES, NODEHEALTHS, NODES, PODS, RECOVERIES
from tests.control_plane.cases import indexed_job
from tests.control_plane.plane import AUDIT_LAG_S, AuditedWrite, ControlPlane
from tests.control_plane.rights import AGENT_USER, CONTROLLER_USER
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

IDLE_S = float(os.environ.get("REKINDLE_IDLE_S", "15"))
SETTLE_S = 3.0
SETTLED_WITHIN_S = 90.0
WATCHED = (NODEHEALTHS, NODES, JOBS, PODS, INCIDENTS, RECOVERIES, CONFIGMAPS)
OURS = {CONTROLLER_USER: "controller", AGENT_USER: "agent"}


async def test_while_a_gang_trains_and_nothing_is_wrong_we_write_the_lease_alone(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=["mode=recover"]) as stage:
        await stage.create(JOBS, indexed_job("llm"), NAMESPACE)
        pods = await stage.running("llm", 2)
        for pod in pods:
            await stage.steps(pod, first=1, last=1)
        before = await settled(stage)
        since = control_plane.audit_position()

        last = await step_each_second(stage, pods, IDLE_S)

        after = await versions(stage)
        await asyncio.sleep(AUDIT_LAG_S)
        writes = [w for w in control_plane.audited(since) if w.user.username in OURS]
        print(f"\n{IDLE_S:g} s, {last} steps, {len(before)} objects; our requests that could write:")
        for (user, verb, what), count in sorted(Counter(told(w) for w in writes).items()):
            print(f"  {user:10} {verb:6} {what:28} {count}")
        assert moved(before, after) == []
        assert [told(w) for w in writes if not may_be_idle(w)] == []
        await stage.xid_79(pods[0]["spec"]["nodeName"])
        await stage.until("sign that the agent had read all steps", lambda: was_read(stage, pods[0], last))


async def settled(stage: RealStage) -> dict[tuple[str, str, str], str]:
    """Returns the versions once none has changed for a while: agents write the last edges after the first
    steps, and the scheduler and the Job controller write, too."""
    found = await versions(stage)
    async with asyncio.timeout(SETTLED_WITHIN_S):
        while True:
            before = found
            await asyncio.sleep(SETTLE_S)
            found = await versions(stage)
            if moved(before, found) == []:
                return found


async def step_each_second(stage: RealStage, pods: list[Any], seconds: float) -> int:
    """Prints one step each second, and returns the last step."""
    begin_s, step = time.monotonic(), 1
    while (time.monotonic() - begin_s) < seconds:
        await asyncio.sleep(1)
        step += 1
        for pod in pods:
            await stage.steps(pod, first=step, last=step)
    return step


async def was_read(stage: RealStage, pod: Any, step: int) -> bool:
    return [p.last_step for p in (await stage.health(pod["spec"]["nodeName"])).pods] == [step]


async def versions(stage: RealStage) -> dict[tuple[str, str, str], str]:
    """Returns the resourceVersion of each object except the lease."""
    return {
        (resource.plural, item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["metadata"][
            "resourceVersion"
        ]
        for resource in WATCHED
        for item in await stage.all(resource)
    }


def moved(before: dict[tuple[str, str, str], str], after: dict[tuple[str, str, str], str]) -> list[Any]:
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


def told(write: AuditedWrite) -> tuple[str, str, str]:
    what = "/".join(part for part in (write.object_ref.resource, write.object_ref.subresource) if part)
    return OURS[write.user.username], write.verb, what


def may_be_idle(write: AuditedWrite) -> bool:
    """Whether the write is allowed while idle: the lease, and an agent's request for its spec, which is an
    empty patch that leaves the resourceVersion unchanged."""
    return told(write) in {
        ("controller", "update", LEASES.plural),
        ("controller", "patch", LEASES.plural),
        ("agent", "patch", f"{NODEHEALTHS.plural}/status"),
    }
