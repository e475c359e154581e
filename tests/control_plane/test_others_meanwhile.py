"""Actions of people, of other parts of Kubernetes, and of the job itself before and during a recovery."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, PODS
from recover.model import REFUSED_AGAIN_S
from tests.control_plane.cases import (
    RECREATE,
    cordons,
    ended,
    incident_of,
    indexed_job,
    is_suspended,
    no_trouble,
    patched,
    recovered,
    recoveries,
    refusals,
    trained,
    writes_to,
)
from tests.control_plane.plane import AuditedWrite, ControlPlane
from tests.control_plane.refusing import refusing
from tests.control_plane.rights import CONTROLLER_NAME
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

WIDE = ("mode=recover", "budgets.quarantined_percent_max=100")


WORDS = "jobs are changed by their owners only"
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


async def test_a_gang_that_a_more_urgent_pod_has_displaced_comes_back_to_the_same_nodes(
    control_plane: ControlPlane,
) -> None:
    """The scheduler took a rank away, which is no evidence against its node; on a full cluster the gang can
    continue only on that node."""
    async with raised(control_plane, nodes=2, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="143", annotations=RECREATE))
        await urgent_pod(stage)
        await stage.until("place for the urgent pod", lambda: is_placed(stage, "urgent"))

        await stage.api.request("DELETE", PODS.path("urgent", NAMESPACE), body={"gracePeriodSeconds": 0})
        recovery = await recovered(stage, "llm", old)

        assert recovery["status"].get("avoidNodes", []) == []
        assert (await incident_of(stage, recovery))["status"]["blame"] == "unknown"
        assert await cordons(stage) == set()
        no_trouble(stage)


async def test_a_gang_that_is_about_to_end_is_not_stopped_for_its_node_and_ends_well(
    control_plane: ControlPlane,
) -> None:
    """The Job controller creates no completed index again, so after a stop the job would stay stopped
    permanently."""
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        first, last = await trained(stage, indexed_job("llm"))
        since = control_plane.audit_position()
        await stage.end(first, exit_code=0)
        await stage.until("completed index", lambda: counted(stage, "completedIndexes"))

        await stage.xid_79(last["spec"]["nodeName"])
        await stage.until("refusal", lambda: refusals(stage, "llm"))
        await stage.end(last, exit_code=0)
        await stage.until("completed Job", lambda: counted(stage, "completionTime"))

        assert set((await refusals(stage, "llm")).values()) == {"RanksEnded"}
        await stage.until("a cordon", lambda: cordons(stage))
        assert await cordons(stage) == {last["spec"]["nodeName"]}
        assert writes_to(control_plane, since, JOBS, "llm") == []
        no_trouble(stage)


async def test_who_holds_a_gang_in_mid_recovery_keeps_it_stopped_until_they_let_it_go(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="never"))
        await stage.xid_79(old[0]["spec"]["nodeName"])
        await stage.until("stopped Job", lambda: is_suspended(stage, "llm"))
        await hold(stage, "true")
        for pod in old:
            path = PODS.path(pod["metadata"]["name"], NAMESPACE)
            await stage.api.request("DELETE", path, body={"gracePeriodSeconds": 0})

        recovery = await ended(stage, "llm", "Blocked", "Held")
        assert "Job ml/llm" in recovery["status"]["message"]
        assert await is_suspended(stage, "llm")

        await hold(stage, None)
        await recovered(stage, "llm", old)
        no_trouble(stage)


async def test_a_stopped_gang_whose_mark_a_person_removes_is_started_again(
    control_plane: ControlPlane,
) -> None:
    """The API server's managedFields show that Rekindle has suspended the Job."""
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="never"))
        await stage.xid_79(old[0]["spec"]["nodeName"])
        await stage.until("stopped Job", lambda: is_suspended(stage, "llm"))
        mark = {"metadata": {"annotations": {"rekindle.dev/recovery": None}}}
        await patched(stage, JOBS, "llm", mark, manager="kubectl-annotate")
        for pod in old:
            path = PODS.path(pod["metadata"]["name"], NAMESPACE)
            await stage.api.request("DELETE", path, body={"gracePeriodSeconds": 0})

        await recovered(stage, "llm", old)
        no_trouble(stage)


async def hold(stage: RealStage, value: str | None) -> None:
    body = {"metadata": {"annotations": {"rekindle.dev/hold": value}}}
    await patched(stage, JOBS, "llm", body, manager="kubectl-annotate")


async def test_a_policy_that_refuses_the_stop_is_told_in_its_words_and_the_gang_goes_on_once_it_is_gone(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm"))
        since = control_plane.audit_position()
        async with refusing(stage, JOBS, WORDS, prefix="llm"):
            await stage.xid_79(old[0]["spec"]["nodeName"])
            recovery = await stage.until("word of the refusal", lambda: of_reason(stage, "StopRefused"))
            await asyncio.sleep(1)  # each change anywhere in the cluster would cause another try
            tries = [w for w in control_plane.audited(since) if is_refused(w)]

        assert WORDS in recovery["status"]["message"]
        lasted_s = (tries[-1].stage_timestamp - tries[0].request_received_timestamp).total_seconds()
        assert len(tries) <= 2 + lasted_s / REFUSED_AGAIN_S
        await recovered(stage, "llm", old)


async def of_reason(stage: RealStage, reason: str) -> Any:
    return next((r for r in await recoveries(stage, "llm") if r["status"].get("reason") == reason), None)


def is_refused(write: AuditedWrite) -> bool:
    is_ours = write.user_agent.startswith(f"{CONTROLLER_NAME}/")
    return is_ours and (write.object_ref.resource, write.response_status.code) == ("jobs", 422)


async def counted(stage: RealStage, what: str) -> str:
    """Returns what the Job controller reports in this field."""
    return str((await stage.get(JOBS, "llm", NAMESPACE))["status"].get(what, ""))


async def urgent_pod(stage: RealStage) -> None:
    """Creates a pod that needs a whole node while no node is free."""
    try:
        await stage.create(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 1000})
    except ApiError as error:
        if not error.exists:  # from another test
            raise
    container = {"name": "serve", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {
        "metadata": {"name": "urgent"},
        "spec": {"priorityClassName": "urgent", "containers": [container]},
    }

    async def is_admitted() -> bool:
        """Whether the pod was admitted. Admission reads classes from a cache of the API server, which sees a
        new class a moment later."""
        try:
            await stage.create(PODS, pod, NAMESPACE)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return False
        return True

    await stage.until("the API server admits a pod of the new class", is_admitted)


async def is_placed(stage: RealStage, pod: str) -> bool:
    return "nodeName" in (await stage.get(PODS, pod, NAMESPACE))["spec"]
