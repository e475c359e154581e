"""Repairs on a real control plane. The shipped controller creates the Jobs with the chart's permissions, the
real scheduler places them on a cordoned and tainted node, and the test ends them in place of the kubelet. A
reboot is simulated: the Node gets a new boot id."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from detectors.client.kubeapi import ApiError
from detectors.wire.contract import Fault, Finding, Origin, Remedy, Severity, Subject, SubjectKind
from detectors.wire.resource import MergePatch
from detectors.wire.step_report import Check, Outcome, ValidationReport, encode
from recover.k8s.kinds import EVENTS, INCIDENTS, JOBS, NODES, PODS, RECOVERIES
from tests.control_plane.cases import indexed_job, no_trouble, trained, uids
from tests.control_plane.controllers import start_controller
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import SYSTEM
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

SETTINGS = ("mode=repair",)
REPAIR_OF = "rekindle.dev/repair"
CLOSED = ("rekindle.dev/unhealthy", "node.kubernetes.io/unschedulable")


def report(**outcomes: Outcome) -> bytes:
    checks = tuple(Check(name=name.replace("_", "-"), outcome=o) for name, o in outcomes.items())
    return encode(ValidationReport(checks=checks))


GOOD = report(devices=Outcome.PASSED, kernel_log=Outcome.PASSED, nccl=Outcome.NOT_RUN)


async def test_a_gpu_is_reset_once_nobody_holds_it_and_the_node_returns_as_it_was(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=2, settings=SETTINGS, agents=1) as stage:
        before = await stage.get(NODES, "n1")
        await stage.create(PODS, foreign_pod("notebook", "n1"), NAMESPACE)
        stage.agents["n1"].xid(95, "pid=4242, name=python3, Uncontained ECC error.")

        waiting = await repair_in(stage, "Waiting", reason="PodsOfOthers")
        assert "ml/notebook" in waiting["message"]
        assert await stage.all(JOBS, SYSTEM) == []
        await stage.api.request("DELETE", PODS.path("notebook", NAMESPACE), body={"gracePeriodSeconds": 0})

        reset = await step_pod(stage, "reset")
        assert (await stage.health("n1")).hands_off == reset["metadata"]["labels"]["job-name"]
        assert reset["spec"]["nodeName"] == "n1", "in spite of the cordon and the taint"
        assert told(reset)["REKINDLE_DEVICES"].startswith("GPU-")
        await stage.end(reset, exit_code=0)
        validation = await step_pod(stage, "validate")
        await stage.end(validation, exit_code=0, message=GOOD)

        done = await repair_in(stage, "Returned")
        assert [step["outcome"] for step in done["steps"]] == ["done", "done"]
        assert {c["name"]: c["outcome"] for c in done["checks"]}["nccl"] == "not-run"
        after = await returned(stage, "n1")
        assert as_people_left_it(after) == as_people_left_it(before)
        await stage.until("Incident Closed", lambda: only_incident_is(stage, "Closed"))
        assert await stage.all(RECOVERIES) == [], "a repair's Job is no gang"
        await stage.until("an agent that holds its devices again", lambda: holds_again(stage))
        no_trouble(stage)


async def test_a_node_is_rebooted_once_its_gang_has_moved_and_fails_its_validation(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, indexed_job("llm"))
        bad = old[0]["spec"]["nodeName"]
        await stage.publish(bad, findings=[broken(await stage.health(bad), Remedy.REBOOT_NODE)])

        reboot = await step_pod(stage, "reboot")
        assert reboot["spec"]["nodeName"] == bad
        assert bad not in {p["spec"]["nodeName"] for p in await stage.running("llm", 2, but=uids(old))}
        await boots_again(stage, bad)
        validation = await step_pod(stage, "validate")
        bad_report = report(devices=Outcome.FAILED, kernel_log=Outcome.PASSED)
        await stage.end(validation, exit_code=1, message=bad_report)

        over = await repair_in(stage, "HandedOver", reason="ValidationFailed")
        assert "devices" in over["message"]
        assert f"kubectl uncordon {bad}" in over["message"]
        assert (await stage.get(NODES, bad))["spec"]["unschedulable"] is True
        await stage.patch(NODES, bad, {"spec": {"unschedulable": None}})
        await returned(stage, bad)
        no_trouble(stage)


async def test_a_misspelt_field_of_a_template_is_told_in_the_incident_and_not_dropped(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    template = tmp_path / "reset.yaml"
    template.write_text("spec: {containers: [{name: reset, image: none, imagePulPolicy: Never}]}")
    settings = ("mode=repair", "repair.hands_off_s=0", f"repair.templates.reset={template}")
    async with raised(control_plane, nodes=2, settings=settings, agents=0) as stage:
        await stage.publish("n1", findings=[broken(await stage.health("n1"), Remedy.RESET_DEVICE)])

        async def said() -> str:
            for incident in await stage.all(INCIDENTS):
                steps = incident["status"].get("repair", {}).get("steps", [])
                return next((step["message"] for step in steps if step.get("message")), "")
            return ""

        message = await stage.until("a word on the step", said)
        assert 'unknown field "spec.template.spec.containers[0].imagePulPolicy"' in message
        assert await stage.all(JOBS, SYSTEM) == []

        told = await dry_run(stage, yaml.safe_load(template.read_text()))
        assert 'unknown field "template.spec.containers[0].imagePulPolicy"' in told, "as docs/repair.md says"
        right = {"spec": {"containers": [{"name": "reset", "image": "none", "imagePullPolicy": "Never"}]}}
        assert await dry_run(stage, right) == ""


async def test_a_controller_killed_in_mid_repair_is_followed_by_one_that_repeats_nothing(
    control_plane: ControlPlane,
) -> None:
    settings = ("mode=repair", "repair.hands_off_s=0")
    async with raised(control_plane, nodes=2, settings=settings, agents=0) as stage:
        await stage.publish("n1", findings=[broken(await stage.health("n1"), Remedy.RESET_DEVICE)])
        reset = await step_pod(stage, "reset")

        await stage.controller.kill()
        await stage.end(reset, exit_code=0)
        stage.controller = await start_controller(stage.api, control_plane, settings)
        try:
            validation = await step_pod(stage, "validate")
            await stage.end(validation, exit_code=0, message=GOOD)
            await repair_in(stage, "Returned")
            await returned(stage, "n1")
            jobs = sorted(job["metadata"]["name"].split("-", 2)[2] for job in await stage.all(JOBS, SYSTEM))
            assert jobs == ["reset-1", "validate-1"]
            no_trouble(stage)
        finally:
            await stage.controller.stop()


async def test_an_incident_deleted_in_mid_repair_comes_back_and_its_node_returns_only_validated(
    control_plane: ControlPlane,
) -> None:
    settings = ("mode=repair", "repair.hands_off_s=0")
    async with raised(control_plane, nodes=2, settings=settings, agents=0) as stage:
        await stage.publish("n1", findings=[broken(await stage.health("n1"), Remedy.RESET_DEVICE)])
        orphan = await step_pod(stage, "reset")
        (before,) = await stage.all(INCIDENTS)
        name = before["metadata"]["name"]

        await stage.api.request("DELETE", INCIDENTS.path(name))

        reset = await step_pod(stage, "reset", but=orphan["metadata"]["name"])
        (anew,) = await stage.all(INCIDENTS)
        assert anew["metadata"]["name"] == name
        assert anew["metadata"]["uid"] != before["metadata"]["uid"]
        assert [e["code"] for e in anew["status"]["evidence"]] == ["xid-79"], "the evidence still stands"
        pods = {p["metadata"]["name"] for p in await stage.all(PODS, SYSTEM, REPAIR_OF)}
        assert orphan["metadata"]["name"] not in pods, "never two resets at once"
        assert (await stage.get(NODES, "n1"))["spec"]["unschedulable"] is True

        await stage.end(reset, exit_code=0)
        await stage.end(await step_pod(stage, "validate"), exit_code=0, message=GOOD)
        await repair_in(stage, "Returned")
        await returned(stage, "n1")
        no_trouble(stage)


async def test_an_incident_deleted_after_a_reboot_is_made_from_the_note_on_its_node(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=2, settings=("mode=recover",), agents=0) as stage:
        await stage.publish("n1", findings=[broken(await stage.health("n1"), Remedy.REBOOT_NODE)])
        await stage.until("an Incident", lambda: stage.all(INCIDENTS))
        await boots_again(stage, "n1")
        (before,) = await stage.all(INCIDENTS)
        name = before["metadata"]["name"]

        await stage.api.request("DELETE", INCIDENTS.path(name))

        async def made_anew() -> Any:
            found = await stage.all(INCIDENTS)
            return next((i for i in found if i["metadata"]["uid"] != before["metadata"]["uid"]), None)

        anew = await stage.until("the Incident made anew", made_anew)
        assert anew["metadata"]["name"] == name

        async def warned() -> Any:
            events = await stage.all(EVENTS)
            return next((e for e in events if e["reason"] == "IncidentRecreated"), None)

        warning = await stage.until("a word on the node", warned)
        assert (warning["type"], warning["regarding"]["name"]) == ("Warning", "n1")
        assert "kubectl uncordon n1" in warning["note"]
        assert (await stage.get(NODES, "n1"))["spec"]["unschedulable"] is True
        await stage.patch(NODES, "n1", {"spec": {"unschedulable": None}})
        await returned(stage, "n1")
        no_trouble(stage)


# --- what is asked and done -------------------------------------------------------------------------------


async def repair_in(stage: RealStage, phase: str, *, reason: str = "") -> Any:
    async def found() -> Any:
        for incident in await stage.all(INCIDENTS):
            repair = incident.get("status", {}).get("repair", {})
            if (
                repair.get("phase", "Waiting" if repair else "") == phase
                and repair.get("reason", "") == reason
            ):
                return repair
        return None

    return await stage.until(f"repair {phase} {reason}", found)


async def step_pod(stage: RealStage, kind: str, *, but: str = "") -> Any:
    """Returns the running pod of that step's newest Job, ignoring the pod with the name `but`."""

    async def found() -> Any:
        pods = await stage.all(PODS, SYSTEM, REPAIR_OF)
        mine = [p for p in pods if f"-{kind}-" in p["metadata"]["name"] and p["metadata"]["name"] != but]
        return next((p for p in mine if p["status"]["phase"] == "Running"), None)

    return await stage.until(f"running pod of the {kind}", found)


def told(pod: Any) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}


async def dry_run(stage: RealStage, template: Any) -> str:
    """Returns the API server's objection to a pod template, or an empty string. Nothing is stored."""
    body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "check"}, "template": template}
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        await stage.api.request("POST", "/api/v1/namespaces/default/podtemplates", params=params, body=body)
    except ApiError as error:
        return str(error)
    return ""


async def returned(stage: RealStage, node: str) -> Any:
    """Returns the node once it is in service. Kubernetes' own controller adds a taint when a node is
    cordoned, and removes the taint later."""

    async def found() -> Any:
        body = await stage.get(NODES, node)
        closed = [t for t in body["spec"].get("taints", []) if t["key"] in CLOSED]
        return None if closed or body["spec"].get("unschedulable") else body

    return await stage.until(f"{node} in service", found)


async def only_incident_is(stage: RealStage, phase: str) -> bool:
    return [incident["status"]["phase"] for incident in await stage.all(INCIDENTS)] == [phase]


def as_people_left_it(node: Any) -> Any:
    meta = node["metadata"]
    return meta["labels"], node["spec"].get("taints"), node["spec"].get("unschedulable", False)


async def holds_again(stage: RealStage) -> bool:
    return not (await stage.health("n1")).hands_off


async def boots_again(stage: RealStage, node: str) -> None:
    """The machine, its kubelet and its agent start in a new boot."""
    boot = f"second-boot-of-{node}"
    path = NODES.path(node, subresource="status")
    status = {"status": {"nodeInfo": {"bootID": boot}}}
    await stage.api.request("PATCH", path, body=status, content_type=MergePatch)
    await stage.publish(node, boot_id=boot, findings=[])


def foreign_pod(name: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}


def broken(health: Any, remedy: Remedy) -> Finding:
    seen = datetime.now(UTC)
    return Finding(
        id=f"{health.boot_id[:8]}-kmsg-1",
        code="xid-79",
        fault=Fault.DEVICE_LOST,
        origin=Origin.KERNEL,
        severity=Severity.FATAL,
        remedy=remedy,
        subject=Subject(kind=SubjectKind.DEVICE, pci="0000:3b:00.0"),
        boot_id=health.boot_id,
        first_seen=seen,
        last_seen=seen,
        final=True,
        sequence=1,
        evidence="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    )
