"""Objects that an earlier version leaves to an upgrade: a Recovery in each phase, quarantined nodes, old
affinity.

test_upgrade.py uses them. Each Recovery is kept in its phase by the same cause as in a cluster: pods that do
not end, a node that nobody hears from, a scan that is still reading, a node that is missing, a person's hold.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from recover.k8s.kinds import JOBS, NODEHEALTHS, PYTORCHJOBS, RECOVERIES
from tests.control_plane.cases import (
    cordons,
    end_at_last,
    hangs,
    indexed_job,
    is_suspended,
    on,
    patched,
    pods_of,
    pytorchjob,
    recoveries,
)
from tests.control_plane.scans import answered, with_checkpoints
from tests.control_plane.stage import NAMESPACE, RealStage

__all__ = [
    "BLIND",
    "BROKEN",
    "HOSTS",
    "IDLE",
    "PHASES",
    "all_train",
    "are_at",
    "begins_from",
    "dead_node",
    "hold",
    "in_every_phase",
    "phases",
]

HOSTS = {
    name: tuple(f"{name}-{number}" for number in range(1, count + 1))
    for name, count in {
        "planned": 2,
        "stopping": 2,
        "fencing": 3,
        "choosing": 2,
        "resuming": 2,
        "verifying": 2,
        "blocked": 2,
        "held": 2,
    }.items()
}
"""Nodes that each gang of two may use. The name of a gang is the state of its Recovery."""
PHASES = {name: name.capitalize() for name in HOSTS} | {"held": "Blocked"}
OF_JOBS = ("fencing", "blocked", "held")
"""Gangs that are Jobs. The others are PyTorchJobs."""
IDLE = "idle"
"""A node that no gang uses."""
BROKEN = (IDLE, "blocked-1", "held-1")
"""Nodes whose GPU dies, each under a gang except the first."""
BLIND = "resuming-2"
"""A node that nobody reports about. After a rank crashed there, the earlier version avoided its node."""


def job_of(name: str) -> dict[str, Any]:
    dying = "never" if name in ("stopping", "held") else "143"
    if name in OF_JOBS:
        return indexed_job(name, dying=dying, pod=on(*HOSTS[name]))
    job = pytorchjob(name, "OnFailure", dying=dying, pod=on(*HOSTS[name]))
    return with_checkpoints(job) if name in ("choosing", "verifying") else job


async def all_train(stage: RealStage) -> dict[str, list[Any]]:
    """Creates all gangs. Returns the pods of each gang, at step 100 if somebody reads their steps."""
    reported = [IDLE, *(host for hosts in HOSTS.values() for host in hosts if host != BLIND)]
    await stage.until("NodeHealths", partial(are_known, stage, {*reported, BLIND}))
    await asyncio.gather(*(stage.covered(node) for node in reported))
    for name in HOSTS:
        await stage.create(JOBS if name in OF_JOBS else PYTORCHJOBS, job_of(name), NAMESPACE)
    old = {name: await stage.running(name, 2) for name in HOSTS}
    for pod in (pod for pods in old.values() for pod in pods):
        if pod["spec"]["nodeName"] != BLIND:
            await stage.steps(pod, 1, 100)
    return old


async def are_known(stage: RealStage, nodes: set[str]) -> bool:
    return nodes <= {one["metadata"]["name"] for one in await stage.all(NODEHEALTHS)}


async def in_every_phase(stage: RealStage, old: dict[str, list[Any]]) -> None:
    """Brings each gang into its phase. The gang that is begun last is the one that would not stay in its
    phase for long."""
    for node in BROKEN:
        await stage.xid_79(node)
    for name in ("planned", "stopping", "choosing", "verifying"):
        await stage.end(old[name][1], exit_code=1)
    await asyncio.gather(stage.dies(dead_node(old)), is_held(stage), begins_from(stage, "verifying", 100))
    await hangs(stage, old["fencing"])
    others = {name: phase for name, phase in PHASES.items() if name != "resuming"}
    await stage.until("all other phases", partial(are_at, stage, others))
    (blind,) = (pod for pod in old["resuming"] if pod["spec"]["nodeName"] == BLIND)
    await stage.end(blind, exit_code=1)
    await stage.until("all phases", partial(are_at, stage, PHASES))
    await stage.until("rank without a place", partial(waits_for_a_place, stage))
    assert await reasons(stage) >= {("blocked", "NoCapacity"), ("held", "Held")}
    assert await cordons(stage) == set(BROKEN)


def dead_node(old: dict[str, list[Any]]) -> str:
    return str(old["fencing"][0]["spec"]["nodeName"])


async def begins_from(stage: RealStage, name: str, step: int) -> None:
    """Lets the scan of that gang's Recovery find a checkpoint."""
    (recovery,) = await stage.until(f"Recovery of {name}", partial(recoveries, stage, name))
    await answered(stage, step, recovery["metadata"]["name"])


async def is_held(stage: RealStage) -> None:
    await stage.until("stopped Job held", partial(is_suspended, stage, "held"))
    await hold(stage, "true")
    await end_at_last(stage, await pods_of(stage, "held"))


async def hold(stage: RealStage, value: str | None) -> None:
    body = {"metadata": {"annotations": {"rekindle.dev/hold": value}}}
    await patched(stage, JOBS, "held", body, manager="kubectl-annotate")


async def waits_for_a_place(stage: RealStage) -> bool:
    return any(pod["status"]["phase"] == "Pending" for pod in await pods_of(stage, "resuming"))


async def phases(stage: RealStage) -> dict[str, str]:
    found = await stage.all(RECOVERIES, NAMESPACE)
    return {r["spec"]["gang"]["name"]: r.get("status", {}).get("phase", "Planned") for r in found}


async def reasons(stage: RealStage) -> set[tuple[str, str]]:
    found = await stage.all(RECOVERIES, NAMESPACE)
    return {(r["spec"]["gang"]["name"], r.get("status", {}).get("reason", "")) for r in found}


async def are_at(stage: RealStage, expected: dict[str, str]) -> bool:
    found = await phases(stage)
    return {name: phase for name, phase in found.items() if name in expected} == expected
