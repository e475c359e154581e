"""PaddleJobs on the real operator. A PaddleJob's gang has only workers, which meet at the first worker.

test_pytorchjob_cases.py tests what PaddleJobs share with PyTorchJobs (names that are not free yet, ranks that
people delete); test_in_a_row.py tests recoveries in a row.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from recover.k8s.kinds import CONFIGMAPS, NODES, PADDLEJOBS
from tests.control_plane.cases import (
    cordons,
    ended,
    goes_on,
    incident_of,
    living,
    no_trouble,
    nodes_of,
    paddlejob,
    patched,
    pods_of,
    recovered,
    recoveries,
    refusals,
    trained,
    uids,
    writes_to,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

SETTINGS = ("mode=recover", "budgets.quarantined_percent_max=100")


async def conditions_of(stage: RealStage, job: str) -> list[str]:
    status = (await stage.get(PADDLEJOBS, job, NAMESPACE)).get("status", {})
    return [c["type"] for c in status.get("conditions", []) if c["status"] == "True"]


async def has_failed(stage: RealStage, job: str) -> bool:
    return "Failed" in await conditions_of(stage, job)


async def test_an_xid_79_moves_a_paddlejob_off_that_node_and_its_new_ranks_read_what_they_are_told(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=4, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, paddlejob("llm", "OnFailure", workers=3), PADDLEJOBS, ranks=3)
        bad = old[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        recovery = await recovered(stage, "llm", old)

        new = await living(stage, "llm")
        assert bad not in nodes_of(new)
        source = {"configMapRef": {"name": "llm-rekindle-paddlejob", "optional": True}}
        assert [pod["spec"]["containers"][0]["envFrom"] for pod in new] == [[source]] * 3
        told = (await stage.get(CONFIGMAPS, "llm-rekindle-paddlejob", NAMESPACE))["data"]
        assert told["REKINDLE_RECOVERY"] == recovery["metadata"]["name"]
        assert await cordons(stage) == {bad}
        await goes_on(stage, PADDLEJOBS, "llm")
        no_trouble(stage)


async def test_a_crashed_worker_is_recovered_unless_its_policy_has_failed_the_job_which_is_said(
    training: ControlPlane,
) -> None:
    """With the policy Never the operator mostly fails the job before a stop can come. To make this certain
    here, the job opts in afterwards."""
    async with raised(training, nodes=6, settings=SETTINGS, agents=0) as stage:  # no spare node
        ends = {"onfailure": ("OnFailure", 1), "exitcode": ("ExitCode", 137)}
        jobs = [paddlejob(name, policy) for name, (policy, _) in ends.items()]
        old = {job["metadata"]["name"]: await trained(stage, job, PADDLEJOBS) for job in jobs}
        never = await trained(stage, paddlejob("never", "Never", labels={}), PADDLEJOBS)
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode
        since = training.audit_position()

        await stage.end(never[1], exit_code=1)
        await asyncio.gather(*(stage.end(old[name][1], exit_code=code) for name, (_, code) in ends.items()))
        found = await asyncio.gather(*(recovered(stage, name, old[name]) for name in ends))
        await stage.until("the job of policy Never Failed", partial(has_failed, stage, "never"))
        opted_in = {"metadata": {"labels": {"rekindle.dev/auto-recovery": "enabled"}}}
        await patched(stage, PADDLEJOBS, "never", opted_in)
        await stage.until("a refusal TerminalJob", lambda: is_refused_as_terminal(stage))

        assert {recovery["spec"]["fault"] for recovery in found} == {"application"}
        for name in ends:
            await goes_on(stage, PADDLEJOBS, name)
            assert not set(uids(old[name])) & set(uids(await pods_of(stage, name)))
        assert await recoveries(stage, "never") == []
        assert writes_to(training, since, PADDLEJOBS, "never") == []
        assert await cordons(stage) == set()
        no_trouble(stage)


async def is_refused_as_terminal(stage: RealStage) -> bool:
    return list((await refusals(stage, "never")).values()) == ["TerminalJob"]


async def test_a_paddlejob_leaves_its_dead_node_once_a_person_has_proven_it_off(
    training: ControlPlane,
) -> None:
    """The rank's pod on the dead node is set to Failed and removed: until then its name blocks the name of
    the new rank."""
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        old: list[Any] = await trained(stage, paddlejob("llm", "OnFailure"), PADDLEJOBS)
        dead = old[0]["spec"]["nodeName"]
        await stage.dies(dead)
        await stage.xid_79(dead)
        await ended(stage, "llm", "Fencing")
        assert (await stage.get(PADDLEJOBS, "llm", NAMESPACE))["spec"]["runPolicy"]["suspend"] is True

        await stage.api.request("DELETE", NODES.path(dead))
        recovery = await recovered(stage, "llm", old)

        assert (await incident_of(stage, recovery))["status"]["blame"] == "node"
        assert dead not in nodes_of(await living(stage, "llm"))
        await goes_on(stage, PADDLEJOBS, "llm")
        no_trouble(stage)
