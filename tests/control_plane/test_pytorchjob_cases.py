"""PyTorchJobs on the real operator: whether each restart policy leaves time for a stop, with its expected
end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recover.k8s.kinds import PODS, PYTORCHJOBS
from tests.control_plane.cases import (
    RECREATE,
    cordons,
    goes_on,
    no_trouble,
    patched,
    pods_of,
    pytorchjob,
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
    status = (await stage.get(PYTORCHJOBS, job, NAMESPACE)).get("status", {})
    return [c["type"] for c in status.get("conditions", []) if c["status"] == "True"]


async def test_a_rank_that_fails_is_recovered_whatever_the_policy_with_consent_to_make_the_job_anew(
    training: ControlPlane,
) -> None:
    """With OnFailure, and with ExitCode and a signal, the job survives until the stop. With Never the
    operator mostly fails the job permanently before the stop comes."""
    async with raised(training, nodes=6, settings=SETTINGS, agents=0) as stage:  # no spare node
        cases = {"onfailure": 1, "exitcode": 137, "never": 1}
        policies = {"onfailure": "OnFailure", "exitcode": "ExitCode", "never": "Never"}
        old = {
            name: await trained(
                stage, pytorchjob(name, policy, dying="143", annotations=RECREATE), PYTORCHJOBS
            )
            for name, policy in policies.items()
        }
        before = {name: await stage.get(PYTORCHJOBS, name, NAMESPACE) for name in policies}
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode

        await asyncio.gather(*(stage.end(worker(old[name]), exit_code=cases[name]) for name in policies))
        found = await asyncio.gather(*(recovered(stage, name, old[name]) for name in policies))

        assert {recovery["spec"]["fault"] for recovery in found} == {"application"}
        for name in policies:
            await goes_on(stage, PYTORCHJOBS, name)
        after = {name: await stage.get(PYTORCHJOBS, name, NAMESPACE) for name in policies}
        for name in ("onfailure", "exitcode"):
            assert uids([after[name]]) == uids([before[name]])
        assert await cordons(stage) == set()
        no_trouble(stage)


def worker(pods: list[Any]) -> Any:
    return next(pod for pod in pods if "worker" in pod["metadata"]["name"])


async def test_the_status_that_the_operator_writes_meanwhile_is_no_conflict(training: ControlPlane) -> None:
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, pytorchjob("llm", "OnFailure", dying="143"), PYTORCHJOBS)
        await asyncio.sleep(1)
        since = training.audit_position()

        await stage.end(worker(old), exit_code=1)
        await recovered(stage, "llm", old)

        stop, start, *_ = [
            write.response_status.code
            for write in training.audited(since)
            if write.user_agent.startswith("rekindle")
            and (write.object_ref.resource, write.object_ref.subresource) == ("pytorchjobs", "")
        ]
        assert (stop, start) == (200, 200)


async def test_a_job_that_its_policy_has_failed_for_good_is_said_so_and_not_touched(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, pytorchjob("llm", "Never", labels={}), PYTORCHJOBS)
        await asyncio.sleep(1)
        await stage.end(worker(old), exit_code=1)
        await stage.until("the job Failed", lambda: has_failed(stage))
        since = training.audit_position()

        opted_in = {"metadata": {"labels": {"rekindle.dev/auto-recovery": "enabled"}}}
        await patched(stage, PYTORCHJOBS, "llm", opted_in)
        await stage.until("a refusal TerminalJob", lambda: is_refused_as_terminal(stage))

        assert await recoveries(stage, "llm") == []
        assert writes_to(training, since, PYTORCHJOBS, "llm") == []


async def has_failed(stage: RealStage) -> bool:
    return "Failed" in await conditions_of(stage, "llm")


async def is_refused_as_terminal(stage: RealStage) -> bool:
    return list((await refusals(stage, "llm")).values()) == ["TerminalJob"]


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
async def test_a_master_that_exits_with_0_when_it_is_stopped_does_not_complete_the_job(
    training: ControlPlane, policy: str
) -> None:
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, pytorchjob("llm", policy, dying="0"), PYTORCHJOBS)
        await stage.xid_79(old[0]["spec"]["nodeName"])

        await recovered(stage, "llm", old)

        await goes_on(stage, PYTORCHJOBS, "llm")
        no_trouble(stage)


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
async def test_nothing_starts_before_an_ended_pod_has_given_its_name_free(
    training: ControlPlane, policy: str
) -> None:
    """Pods have fixed names, and the operator takes an old Failed pod for the pod of the new rank."""
    finalizer = "example.com/keeps-it"
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        job = pytorchjob("llm", policy, dying="143", finalizers=[finalizer])
        old = await trained(stage, job, PYTORCHJOBS)
        await stage.xid_79(old[0]["spec"]["nodeName"])
        await stage.until("old pods Failed", lambda: all_failed(stage))
        await asyncio.sleep(1)
        assert (await stage.get(PYTORCHJOBS, "llm", NAMESPACE))["spec"]["runPolicy"]["suspend"] is True

        for pod in old:
            await patched(stage, PODS, pod["metadata"]["name"], {"metadata": {"finalizers": None}})
        await recovered(stage, "llm", old)

        assert "Failed" not in await conditions_of(stage, "llm")


async def all_failed(stage: RealStage) -> bool:
    return [pod["status"]["phase"] for pod in await pods_of(stage, "llm")] == ["Failed", "Failed"]


async def test_a_worker_that_a_person_deletes_is_a_lost_rank(training: ControlPlane) -> None:
    """The operator creates the worker again beside its old peers, which wait for the deleted worker."""
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, pytorchjob("llm", "OnFailure", dying="143"), PYTORCHJOBS)
        await asyncio.sleep(1)

        await stage.api.request("DELETE", PODS.path(worker(old)["metadata"]["name"], NAMESPACE))
        recovery = await recovered(stage, "llm", old)

        assert not set(uids(old)) & set(uids(await pods_of(stage, "llm")))
        assert await cordons(stage) == set()
        (cause,) = recovery["status"]["causes"]
        assert (cause["error"], cause["fault"]) == ("deleted", "host"), cause
