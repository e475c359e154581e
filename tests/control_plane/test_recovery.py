"""A recovery on a real control plane, from the kernel's record to the first new step, with the real Job
controller, training-operator and scheduler, and the shipped controller and agents as processes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from recover.checkpoints.scan_result import Checkpoint, ScanMessage, encode_message
from recover.k8s.kinds import CONFIGMAPS, EVENTS, INCIDENTS, JOBS, NODES, PODS, PYTORCHJOBS, RECOVERIES
from tests.control_plane.cases import (
    RECREATE,
    cordons,
    ended,
    goes_on,
    indexed_job,
    no_trouble,
    nodes_of,
    pytorchjob,
    trained,
    uids,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane


OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
CHECKPOINTS = {"name": "checkpoints", "nfs": {"server": "nfs.example", "path": "/llm"}}


def checkpointing_job() -> dict[str, Any]:
    """Returns a job with checkpoints on NFS, which nothing mounts here. Its ranks read the variables of a
    recovery."""
    container = {
        "name": "train",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "envFrom": [{"configMapRef": {"name": "llm-rekindle-job", "optional": True}}],
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
    }
    annotations = {"rekindle.dev/checkpoint": "/checkpoints;format=rekindle-sharded"}
    return indexed_job(
        "llm", annotations=annotations, pod={"containers": [container], "volumes": [CHECKPOINTS]}
    )


async def test_an_indexed_job_is_moved_off_a_node_whose_gpu_fell_off_the_bus(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=["mode=recover"]) as stage:
        old = await trained(stage, indexed_job("llm"))
        bad = old[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        new = await stage.running("llm", 2, but=uids(old))

        assert bad not in nodes_of(new)
        await stage.steps(new[0], first=91, last=91)
        recovery = await ended(stage, "llm", "Succeeded")
        assert (recovery["status"]["attempt"], recovery["status"]["resumedStep"]) == (1, 91)
        assert reasons(recovery)["CheckpointVerified"] == "CheckpointUnverified"
        job = await stage.get(JOBS, "llm", NAMESPACE)
        assert (job["spec"]["suspend"], job["status"].get("failed")) == (False, None)
        await cordoned(stage, bad)
        await told(stage, bad)


async def test_the_scan_pod_is_let_in_released_when_the_old_pods_are_gone_and_its_choice_is_used(
    control_plane: ControlPlane,
) -> None:
    chosen = Checkpoint(step=90, path="step-90", format="rekindle-sharded", complete=True, reason="", bytes=1)
    async with raised(control_plane, nodes=3, settings=["mode=recover"]) as stage:
        old = await trained(stage, checkpointing_job())
        await stage.xid_79(old[0]["spec"]["nodeName"])

        scan = await stage.until("running scan pod", lambda: running_scan(stage))
        assert scan["spec"]["volumes"][0]["nfs"]["readOnly"] is True
        assert await stage.all(PODS, NAMESPACE, "batch.kubernetes.io/job-name=llm") == []
        await stage.end(scan, exit_code=0, message=encode_message(ScanMessage(chosen=chosen, found=1)))
        new = await stage.running("llm", 2, but=uids(old))
        environment = (await stage.get(CONFIGMAPS, "llm-rekindle-job", NAMESPACE))["data"]
        assert environment["REKINDLE_RESUME_STEP"] == "90"
        await stage.steps(new[0], first=91, last=91)

        recovery = await ended(stage, "llm", "Succeeded")
        assert recovery["status"]["checkpoint"]["step"] == 90
        environment = (await stage.get(CONFIGMAPS, "llm-rekindle-job", NAMESPACE))["data"]
        assert environment.keys() == {"REKINDLE_RECOVERY"}
        await stage.until("removal of the scan pod", lambda: has_no_scan(stage))
        no_trouble(stage)


async def test_a_crashed_rank_stops_the_gang_once_and_takes_no_node(control_plane: ControlPlane) -> None:
    """The job consents to be created again, so that the gang need not wait 10 s for a failure that was
    counted."""
    async with raised(control_plane, nodes=3, settings=["mode=recover"]) as stage:
        old = await trained(stage, indexed_job("llm", annotations=RECREATE))
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode

        await stage.end(old[0], exit_code=1)
        new = await stage.running("llm", 2, but=uids(old))
        await stage.steps(new[0], first=91, last=91)

        recovery = await ended(stage, "llm", "Succeeded")
        assert recovery["status"]["attempt"] == 1
        assert await cordons(stage) == set()
        no_trouble(stage)


async def test_an_xid_79_in_the_kernel_log_moves_a_pytorchjob_of_four_pods_off_that_node_alone(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=5, settings=["mode=recover"]) as stage:
        old = await trained(stage, pytorchjob("llm", "OnFailure", workers=3), PYTORCHJOBS, ranks=4)
        bad = old[0]["spec"]["nodeName"]
        before = await stage.until("nodes without a taint", lambda: untainted(stage))

        await stage.xid_79(bad)
        new = await stage.running("llm", 4, but=uids(old))

        assert bad not in nodes_of(new)
        assert all(pod["spec"]["containers"][0]["envFrom"] for pod in new)
        await stage.until("Verifying", lambda: in_phase(stage, "Verifying"))
        await asyncio.sleep(1)
        assert await in_phase(stage, "Verifying"), "nothing has proven yet that the gang trains again"
        stepped_at = datetime.now(UTC)
        await stage.steps(new[0], first=91, last=91)
        status = (await ended(stage, "llm", "Succeeded"))["status"]
        assert (status["attempt"], status["resumedStep"]) == (1, 91)
        assert entered(status, "Succeeded") >= stepped_at
        await goes_on(stage, PYTORCHJOBS, "llm")
        await cordoned(stage, bad)
        after = await nodes_as_set(stage)
        assert {n: after[n] for n in after if n != bad} == {n: before[n] for n in before if n != bad}
        no_trouble(stage)


async def untainted(stage: RealStage) -> dict[str, Any] | None:
    """Returns the nodes once Kubernetes has removed its taints of new nodes, otherwise None."""
    nodes = await nodes_as_set(stage)
    return None if any(node["spec"].get("taints") for node in nodes.values()) else nodes


async def nodes_as_set(stage: RealStage) -> dict[str, Any]:
    """Returns all that anybody but a kubelet may write on each node."""
    return {
        node["metadata"]["name"]: {
            "spec": node["spec"],
            "labels": node["metadata"].get("labels"),
            "annotations": node["metadata"].get("annotations"),
        }
        for node in await stage.all(NODES)
    }


def entered(status: Any, phase: str) -> datetime:
    (at,) = (datetime.fromisoformat(row["at"]) for row in status["phases"] if row["phase"] == phase)
    return at


async def test_the_pods_of_dead_nodes_are_freed_once_a_person_proves_that_they_are_off(
    control_plane: ControlPlane,
) -> None:
    """The proof is the taint, or the deletion of the Node. An API server lets a pod be set to Failed and
    removed although its kubelet never answers."""
    settings = ["mode=recover", "budgets.quarantined_percent_max=100", "budgets.pool_percent_max=100"]
    async with raised(control_plane, nodes=6, settings=settings) as stage:
        old = {job: await trained(stage, indexed_job(job)) for job in ("llm", "vlm")}
        tainted, deleted = (old[job][0]["spec"]["nodeName"] for job in old)
        await asyncio.gather(stage.dies(tainted), stage.dies(deleted))
        for node in (tainted, deleted):
            await stage.xid_79(node)
        for job in old:
            await ended(stage, job, "Fencing")

        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        taints = (await stage.get(NODES, tainted))["spec"]["taints"]
        await stage.patch(NODES, tainted, {"spec": {"taints": [*taints, taint]}})
        await stage.api.request("DELETE", NODES.path(deleted))

        for job, pods in old.items():
            new = await stage.running(job, 2, but=uids(pods))
            assert not nodes_of(new) & {tainted, deleted}
            await stage.steps(new[0], first=91, last=91)
            await ended(stage, job, "Succeeded")
        no_trouble(stage)


async def in_phase(stage: RealStage, phase: str) -> bool:
    recoveries = await stage.all(RECOVERIES, NAMESPACE)
    return [recovery["status"]["phase"] for recovery in recoveries] == [phase]


async def running_scan(stage: RealStage) -> Any:
    scans = await stage.all(PODS, NAMESPACE, "rekindle.dev/scan-of")
    return next((scan for scan in scans if scan["status"]["phase"] == "Running"), None)


async def has_no_scan(stage: RealStage) -> bool:
    return await stage.all(PODS, NAMESPACE, "rekindle.dev/scan-of") == []


def reasons(recovery: Any) -> dict[str, str]:
    return {condition["type"]: condition["reason"] for condition in recovery["status"]["conditions"]}


async def cordoned(stage: RealStage, bad: str) -> None:
    """Asserts that the bad node and no other is cordoned, with Rekindle's taint beside those of
    Kubernetes."""
    for node in await stage.all(NODES):
        keys = [taint["key"] for taint in node["spec"].get("taints", [])]
        is_bad = node["metadata"]["name"] == bad
        assert node["spec"].get("unschedulable", False) is is_bad
        assert ("rekindle.dev/unhealthy" in keys) is is_bad


async def told(stage: RealStage, bad: str) -> None:
    """Asserts the Incident with its evidence, and the Events, as a real API server stored them."""
    (incident,) = await stage.all(INCIDENTS)
    assert (incident["spec"]["node"], incident["spec"]["fault"]) == (bad, "device-lost")
    assert incident["status"]["evidence"][0]["code"] == "xid-79"
    done = {a["action"] for a in incident["status"]["actions"] if a["outcome"] == "done"}
    assert done == {"quarantine-node", "restart-gang"}

    await stage.until("RecoverySucceeded", lambda: is_announced(stage, "RecoverySucceeded"))
    no_trouble(stage)


async def is_announced(stage: RealStage, reason: str) -> bool:
    """Whether an Event with this reason exists. An Event is written after the status that it reports."""
    events = [e for e in await stage.all(EVENTS) if e.get("reportingController") == "rekindle.dev/controller"]
    return reason in {event["reason"] for event in events}
