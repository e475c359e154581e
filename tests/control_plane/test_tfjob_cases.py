"""TFJobs on the real operator: a gang with parameter servers, and what differs from the other kinds of the
training-operator.

test_pytorchjob_cases.py and test_paddlejob_cases.py test what these kinds share.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from recover.k8s.kinds import CONFIGMAPS, PODS, TFJOBS
from tests.control_plane.cases import (
    cordons,
    goes_on,
    living,
    no_trouble,
    nodes_of,
    pods_of,
    recovered,
    recoveries,
    tfjob,
    trained,
    uids,
    writes_to,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

SETTINGS = ("mode=recover", "budgets.quarantined_percent_max=100")
ROLES = {"Chief": 1, "Worker": 1, "PS": 1}


async def has_failed(stage: RealStage, job: str) -> bool:
    status = (await stage.get(TFJOBS, job, NAMESPACE)).get("status", {})
    return any(c["type"] == "Failed" and c["status"] == "True" for c in status.get("conditions", []))


async def test_an_xid_79_moves_all_roles_of_a_tfjob_off_that_node_and_nothing_is_counted(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=4, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, tfjob("llm", "OnFailure", roles=ROLES), TFJOBS, ranks=3)
        bad = old[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        recovery = await recovered(stage, "llm", old)

        new = await living(stage, "llm")
        assert {pod["metadata"]["name"] for pod in new} == {"llm-chief-0", "llm-worker-0", "llm-ps-0"}
        assert bad not in nodes_of(new)
        source = {"configMapRef": {"name": "llm-rekindle-tfjob", "optional": True}}
        assert [pod["spec"]["containers"][0]["envFrom"] for pod in new] == [[source]] * 3
        told = (await stage.get(CONFIGMAPS, "llm-rekindle-tfjob", NAMESPACE))["data"]
        assert told["REKINDLE_RECOVERY"] == recovery["metadata"]["name"]
        assert not await has_failed(stage, "llm")
        assert await cordons(stage) == {bad}
        await goes_on(stage, TFJOBS, "llm")
        no_trouble(stage)


async def test_a_failed_parameter_server_restarts_the_whole_gang(training: ControlPlane) -> None:
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:  # no spare node
        old = await trained(stage, tfjob("llm", "OnFailure", roles=ROLES), TFJOBS, ranks=3)
        (server,) = (pod for pod in old if pod["metadata"]["name"] == "llm-ps-0")

        await stage.end(server, exit_code=1)
        recovery = await recovered(stage, "llm", old)

        assert recovery["spec"]["fault"] == "application"
        assert not set(uids(old)) & set(uids(await pods_of(stage, "llm")))
        assert not await has_failed(stage, "llm")
        assert await cordons(stage) == set()
        await goes_on(stage, TFJOBS, "llm")
        no_trouble(stage)


async def test_a_tfjob_that_a_person_has_failed_by_deleting_a_pod_is_left_alone(
    training: ControlPlane,
) -> None:
    """To be certain that the operator fails the job before any stop, the job has not opted in."""
    async with raised(training, nodes=3, settings=SETTINGS, agents=0) as stage:
        job = tfjob("llm", "OnFailure", roles=ROLES, labels={})
        old = await trained(stage, job, TFJOBS, ranks=3)
        await asyncio.sleep(1)
        since = training.audit_position()

        await stage.api.request("DELETE", PODS.path(old[0]["metadata"]["name"], NAMESPACE))
        await stage.until("the TFJob Failed", partial(has_failed, stage, "llm"))

        assert await recoveries(stage, "llm") == []
        assert writes_to(training, since, TFJOBS, "llm") == []
        no_trouble(stage)
