"""A recovery on a real control plane: real Job controller, real scheduler, the shipped controller process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from recover.kube.cluster import CONFIGMAPS, EVENTS, INCIDENTS, JOBS, NODES, RECOVERIES
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane


def indexed_job(name: str, ranks: int) -> dict[str, Any]:
    container = {
        "name": "train",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "envFrom": [{"configMapRef": {"name": f"{name}-rekindle", "optional": True}}],
    }
    return {
        "metadata": {"name": name, "labels": {"rekindle.dev/auto-recovery": "enabled"}},
        "spec": {
            "completionMode": "Indexed",
            "completions": ranks,
            "parallelism": ranks,
            "backoffLimit": 6,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


async def test_an_indexed_job_is_moved_off_a_node_whose_gpu_fell_off_the_bus(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=["mode=recover"]) as stage:
        await stage.create(JOBS, indexed_job("llm", 2), NAMESPACE)
        old = await stage.running("llm", 2)
        for pod in old:
            await stage.steps(pod, first=1, last=100)
        bad = old[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        new = await stage.running("llm", 2, but=[pod["metadata"]["uid"] for pod in old])

        assert bad not in {pod["spec"]["nodeName"] for pod in new}
        await cordoned(stage, bad)
        await verified(stage, new)
        await told(stage, bad)


async def cordoned(stage: RealStage, bad: str) -> None:
    """The bad node and no other, with our taint beside those of Kubernetes."""
    for node in await stage.all(NODES):
        keys = [taint["key"] for taint in node["spec"].get("taints", [])]
        is_bad = node["metadata"]["name"] == bad
        assert node["spec"].get("unschedulable", False) is is_bad
        assert ("rekindle.dev/unhealthy" in keys) is is_bad


async def verified(stage: RealStage, pods: list[Any]) -> None:
    """Succeeded only after a new step, and nothing counted against the job."""
    (recovery,) = await stage.all(RECOVERIES, NAMESPACE)
    assert recovery["status"]["phase"] in ("Resuming", "Verifying")
    await stage.steps(pods[0], first=91, last=91)

    async def done() -> Any:
        (recovery,) = await stage.all(RECOVERIES, NAMESPACE)
        return recovery if recovery["status"]["phase"] == "Succeeded" else None

    recovery = await stage.until("Succeeded", done)
    assert (recovery["status"]["attempt"], recovery["status"]["resumedStep"]) == (1, 91)
    job = await stage.get(JOBS, "llm", NAMESPACE)
    assert job["spec"]["suspend"] is False
    assert job["status"].get("failed") is None
    assert (await stage.get(CONFIGMAPS, "llm-rekindle", NAMESPACE))["data"]


async def told(stage: RealStage, bad: str) -> None:
    """The Incident with its evidence, and the Events, as a real API server took them."""
    (incident,) = await stage.all(INCIDENTS)
    assert (incident["spec"]["node"], incident["spec"]["fault"]) == (bad, "device-lost")
    assert incident["status"]["evidence"][0]["code"] == "xid-79"
    done = {a["action"] for a in incident["status"]["actions"] if a["outcome"] == "done"}
    assert done == {"quarantine-node", "restart-gang"}

    events = [e for e in await stage.all(EVENTS) if e.get("reportingController") == "rekindle.dev/controller"]
    assert {"RecoverySucceeded"} <= {event["reason"] for event in events}
    lines = [msgspec.json.decode(line) for line in stage.controller.log.read_bytes().splitlines()]
    assert [line for line in lines if line["level"] in ("warning", "error")] == []
