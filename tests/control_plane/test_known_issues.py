"""Known issues on a real control plane: real agents find the line, Rekindle gives the change to the gang's
next pods and removes a change that did not help, and owners of jobs that are not restarted are informed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from detectors.wire.resource import MergePatch, Resource
from recover.k8s.kinds import CONFIGMAPS, EVENTS, INCIDENTS, NODES, PADDLEJOBS, PODS, PYTORCHJOBS
from tests.control_plane.cases import (
    cordons,
    no_trouble,
    paddlejob,
    pytorchjob,
    recovered,
    recoveries,
    trained,
    uids,
)
from tests.control_plane.plane import AUDIT_LAG_S, ControlPlane
from tests.control_plane.rights import CONTROLLER_USER
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
OFFERED = {"tencent.com/vcuda-core": "100", "tencent.com/vcuda-memory": "64"}
SHARE = {"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "20"}
FLAG = "FLAGS_allocator_strategy"
OUT_OF_MEMORY = (
    "Out of memory error on GPU 0. Cannot allocate 762.939697MB memory on GPU 0, 3.256321GB memory has been "
    "allocated and available memory is only 1.527736GB."
)
TOO_OLD = (
    "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla "
    "V100-SXM2-32GB GPU has compute capability 7.0. You can use float16 instead by explicitly setting the "
    "`dtype` flag in CLI, for example: --dtype=half."
)


# --- a gang -------------------------------------------------------------------------------------------------


async def test_a_paddlejob_on_a_share_of_a_gpu_is_given_another_allocator_and_loses_it_when_it_did_not_help(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=2, settings=["mode=recover"]) as stage:
        await offers_shares(stage)
        old = await trained(stage, on_a_share("llm"), PADDLEJOBS)
        await runs_out_of_memory(stage, old[0])

        first = await recovered(stage, "llm", old)

        new = await stage.running("llm", 2)
        source = {"configMapRef": {"name": "llm-rekindle-paddlejob", "optional": True}}
        assert [pod["spec"]["containers"][0]["envFrom"] for pod in new] == [[source]] * 2
        assert (await told(stage))[FLAG] == "naive_best_fit"
        (use,) = first["status"]["recipes"]
        assert (use["name"], use["outcome"]) == ("paddle-autogrow-oom", "applied")
        assert OUT_OF_MEMORY in use["seen"]
        verdicts = {c["type"]: c["reason"] for c in first["status"]["conditions"]}
        assert verdicts["RecipeVerified"] == "SeenBySteps"

        await runs_out_of_memory(stage, new[0])
        again = await stage.running("llm", 2, but=uids(new))

        (use,) = (await second_recovery(stage))["status"]["recipes"]
        assert (use["name"], use["outcome"]) == ("paddle-autogrow-oom", "gave-up")
        assert FLAG not in await told(stage)
        assert "REKINDLE_RECOVERY" in await told(stage)
        assert [pod["spec"]["containers"][0]["envFrom"] for pod in again] == [[source]] * 2
        assert await cordons(stage) == set()
        no_trouble(stage)


async def test_a_gang_that_prints_a_known_line_and_loses_its_gpu_is_started_again_elsewhere(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=3, settings=["mode=recover"]) as stage:
        old = await trained(stage, pytorchjob("llm", "OnFailure"), PYTORCHJOBS)
        broken = old[0]["spec"]["nodeName"]
        stage.agents[broken].prints(old[0], ["RuntimeError: CUDA error: device kernel image is invalid"])
        await stage.until("known line in its NodeHealth", partial(has_known_line, stage, old[0]))
        await stage.xid_79(broken)

        recovery = await recovered(stage, "llm", old)

        assert "recipes" not in recovery["status"]
        assert await cordons(stage) == {broken}
        no_trouble(stage)


def on_a_share(name: str) -> dict[str, Any]:
    job = paddlejob(name, "OnFailure")
    pod = job["spec"]["paddleReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": SHARE}
    return job


async def offers_shares(stage: RealStage) -> None:
    """Offers shares of GPUs, as the device plugin of a GPU-sharing layer would register them."""
    for node in await stage.all(NODES):
        path = NODES.path(node["metadata"]["name"], subresource="status")
        body = {"status": {"capacity": OFFERED, "allocatable": OFFERED}}
        await stage.api.request("PATCH", path, body=body, content_type=MergePatch)


async def runs_out_of_memory(stage: RealStage, pod: Any) -> None:
    """The rank prints Paddle's own error text, its agent finds the text, and the rank ends. The end is in a
    later second than the beginning of the mode and of the gang: the API stores whole seconds, and Rekindle
    ignores faults from before the mode began."""
    stage.agents[pod["spec"]["nodeName"]].prints(pod, ["ResourceExhaustedError: ", "", OUT_OF_MEMORY])
    await stage.until("known line in its NodeHealth", partial(has_known_line, stage, pod))
    await asyncio.sleep(1)
    await stage.end(pod, exit_code=1)


async def has_known_line(stage: RealStage, pod: Any) -> bool:
    health = await stage.health(pod["spec"]["nodeName"])
    return any(p.known_lines for p in health.pods if p.uid == pod["metadata"]["uid"])


async def told(stage: RealStage) -> dict[str, str]:
    found: dict[str, str] = (await stage.get(CONFIGMAPS, "llm-rekindle-paddlejob", NAMESPACE))["data"]
    return found


async def second_recovery(stage: RealStage) -> Any:
    found = await recoveries(stage, "llm")
    assert len(found) == 2, [one["metadata"]["name"] for one in found]
    return max(found, key=lambda one: int(one["spec"]["number"]))


# --- an owner that is not restarted -------------------------------------------------------------------------


async def test_the_owner_of_a_deployment_is_told_its_known_issue_and_nothing_of_it_is_written(
    control_plane: ControlPlane,
) -> None:
    async with (
        raised(control_plane, nodes=1, settings=["mode=recover"]) as stage,
        AsyncExitStack() as after,
    ):
        since = control_plane.audit_position()
        await stage.create(DEPLOYMENTS, serving(), NAMESPACE)
        after.push_async_callback(removed, stage)
        pod = await stage.until("running pod of vllm", partial(serving_pod, stage))
        stage.agents["n1"].prints(pod, [TOO_OLD])

        incident = await stage.until("incident", partial(only_incident, stage))
        event = await stage.until("KnownIssue on the pod", partial(told_on, stage, "Pod"))

        (refused,) = incident["status"]["actions"]
        assert [refused[field] for field in ("action", "outcome", "reason")] == [
            "apply-recipe",
            "refused",
            "Unsupported",
        ]
        assert "--dtype=half" in refused["message"]
        assert "Deployment ml/vllm" in incident["status"]["summary"]
        assert event["regarding"]["uid"] == pod["metadata"]["uid"]
        assert "--dtype=half" in event["note"]
        await asyncio.sleep(AUDIT_LAG_S)
        written = {
            write.object_ref.resource
            for write in control_plane.audited(since)
            if write.user.username == CONTROLLER_USER
        }
        assert {"incidents", "events"} <= written <= {"incidents", "events", "leases", "nodehealths"}
        no_trouble(stage)


def serving() -> dict[str, Any]:
    labels = {"app": "vllm"}
    container = {
        "name": "server",
        "image": "vllm/vllm-openai:v0.6",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "vllm"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def removed(stage: RealStage) -> None:
    """Deletes the Deployment with its pods: a pod that its ReplicaSet creates again would still exist in the
    next test."""
    path = DEPLOYMENTS.path("vllm", NAMESPACE)
    await stage.api.request("DELETE", path, body={"propagationPolicy": "Foreground"})

    async def gone() -> bool:
        return await stage.all(DEPLOYMENTS, NAMESPACE) == []

    await stage.until("end of the Deployment", gone)


async def serving_pod(stage: RealStage) -> Any:
    pods = await stage.all(PODS, NAMESPACE, "app=vllm")
    return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)


async def only_incident(stage: RealStage) -> Any:
    found = [one for one in await stage.all(INCIDENTS) if one.get("status", {}).get("actions")]
    assert len(found) <= 1, [one["metadata"]["name"] for one in found]
    return found[0] if found else None


async def told_on(stage: RealStage, kind: str) -> Any:
    events = await stage.all(EVENTS, NAMESPACE)
    ours = (one for one in events if one.get("reason") == "KnownIssue")
    return next((one for one in ours if one["regarding"]["kind"] == kind), None)
