"""A scan pod cannot answer, on a real API server, scheduler and quota controller. Its recovery continues, and
reports the cause in their words. The test reports what a kubelet would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
import pytest

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, EVENTS, NAMESPACES, NODES, PODS
from tests.control_plane.cases import indexed_job, recoveries, trained
from tests.control_plane.clean import removed
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import CONTROLLER_NAME
from tests.control_plane.scans import SCANS, answered, says_kubelet, scan_of, with_checkpoints
from tests.control_plane.stage import ANSWERED_S, NAMESPACE, RealStage, raised
from tests.facts import names

pytestmark = pytest.mark.control_plane

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_ADMISSION = "admissionregistration.k8s.io"
MUTATING = Resource(_ADMISSION, "v1", "mutatingadmissionpolicies", "", namespaced=False)
MUTATING_BINDINGS = Resource(_ADMISSION, "v1", "mutatingadmissionpolicybindings", "", namespaced=False)
RESTRICTED = "pod-security.kubernetes.io/enforce"
ENVIRONMENT = "llm-rekindle-job"
DEADLINE_S = 60.0
"""Deadline of a scan in seconds, long enough to tell a shortened wait from a full one, even on a busy
machine."""
SHORT_S = 15.0
"""Deadline in seconds for scans that last until it: the scheduler has tried to place their pod by then."""


def checkpointing_job(**annotations: str) -> dict[str, Any]:
    """Returns a job of one rank with checkpoints on NFS."""
    return with_checkpoints(indexed_job("llm", ranks=1, annotations=annotations))


def hostile_job() -> dict[str, Any]:
    """Returns a job that runs as root, and mounts its checkpoints, from a claim, over the program of a scan
    pod."""
    job = checkpointing_job()
    job["metadata"]["annotations"]["rekindle.dev/checkpoint"] = "/opt/rekindle"
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "llm"}}]
    pod["securityContext"] = {"runAsUser": 0, "seLinuxOptions": {"type": "spc_t", "level": "s0:c1,c2"}}
    for container in pod["containers"]:
        container["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/opt/rekindle"}]
        container["securityContext"] = {"privileged": True}
    return job


@asynccontextmanager
async def trains(
    plane: ControlPlane,
    *,
    scan_deadline_s: float = DEADLINE_S,
    annotations: Mapping[str, str] = {},
    job: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[RealStage, Any]]:
    """Yields a stage with a gang of one rank at step 100 on one of two nodes, and the gang's pod."""
    settings = ["mode=recover", f"timing.scan_deadline_s={scan_deadline_s:g}"]
    async with raised(plane, nodes=2, settings=settings, agents=0) as stage, claimed(stage):
        (pod,) = await trained(stage, job or checkpointing_job(**annotations), ranks=1)
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode
        yield stage, pod


@asynccontextmanager
async def claimed(stage: RealStage) -> AsyncIterator[None]:
    """Binds the claim `llm` to a volume."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    nfs = {"server": "nfs.example", "path": "/llm"}
    volume = {**common, "capacity": size, "nfs": nfs, "claimRef": {"namespace": NAMESPACE, "name": "llm"}}
    await stage.create(VOLUMES, {"metadata": {"name": "llm"}, "spec": volume})
    claim = {**common, "volumeName": "llm", "resources": {"requests": size}}
    await stage.create(CLAIMS, {"metadata": {"name": "llm"}, "spec": claim}, NAMESPACE)
    try:
        yield
    finally:
        await removed(stage.api, CLAIMS, "llm", NAMESPACE)
        await removed(stage.api, VOLUMES, "llm")


@asynccontextmanager
async def quota(stage: RealStage, **hard: str) -> AsyncIterator[None]:
    """Puts a quota into force: the quota controller has counted the existing objects when the block
    begins."""
    await stage.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, NAMESPACE)
    try:
        await stage.until("counted quota", lambda: counted(stage))
        yield
    finally:
        await stage.api.request("DELETE", QUOTAS.path("q", NAMESPACE))


async def counted(stage: RealStage) -> bool:
    return bool((await stage.get(QUOTAS, "q", NAMESPACE)).get("status", {}).get("used"))


@asynccontextmanager
async def restricted(stage: RealStage) -> AsyncIterator[None]:
    """The namespace admits no pods that break Pod Security's strictest profile, and inline NFS breaks it."""
    await stage.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {RESTRICTED: "restricted"}}})
    try:
        await stage.until("the profile in force", lambda: admits(stage, 0))
        yield
    finally:
        await stage.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {RESTRICTED: None}}})
        await stage.until("end of the profile", lambda: admits(stage, 1))


@asynccontextmanager
async def meshed(stage: RealStage) -> AsyncIterator[None]:
    """Each scan pod gets a sidecar, as from a mesh that ignores the pod's request for none."""
    sidecar = "Object.spec.containers{name: 'mesh', image: 'mesh'}"
    add = f"[JSONPatch{{op: 'add', path: '/spec/containers/-', value: {sidecar}}}]"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    only = {"name": "scans", "expression": "'rekindle.dev/scan-of' in object.metadata.?labels.orValue({})"}
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [only],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": add}}],
    }
    await stage.create(MUTATING, {"metadata": {"name": "mesh"}, "spec": spec})
    await stage.create(MUTATING_BINDINGS, {"metadata": {"name": "mesh"}, "spec": {"policyName": "mesh"}})
    try:
        await stage.until("the mesh in force", lambda: admits(stage, 2))
        yield
    finally:
        for kind in (MUTATING_BINDINGS, MUTATING):
            await stage.api.request("DELETE", kind.path("mesh"))
        await stage.until("end of the mesh", lambda: admits(stage, 1))


async def admits(stage: RealStage, containers: int) -> bool:
    """Whether a pod with one container and the label of a scan would be stored with that many containers. 0
    means that the pod is refused. Namespaces' labels and policies are in force a moment after they were
    written."""
    body = {
        "metadata": {"name": "probe", "labels": {SCANS: "probe"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    try:
        path, params = PODS.path(namespace=NAMESPACE), {"dryRun": "All"}
        raw = await stage.api.request("POST", path, params=params, body=body)
    except ApiError as error:
        if error.status != 403:
            raise
        return containers == 0
    return len(msgspec.json.decode(raw)["spec"]["containers"]) == containers


async def unverified(stage: RealStage) -> tuple[str, float]:
    """Returns why the recovery continued without a verified checkpoint, and how many seconds the phase
    Choosing took."""

    async def found() -> Any:
        return next((r for r in await recoveries(stage, "llm") if resumed_at(r)), None)

    status = (await stage.until("Resuming", found))["status"]
    (condition,) = [c for c in status["conditions"] if c["type"] == "CheckpointVerified"]
    assert (condition["status"], condition["reason"]) == ("False", "CheckpointUnverified")
    assert condition["message"] == status["checkpoint"]["reason"]
    entered = {p["phase"]: datetime.fromisoformat(p["at"]) for p in status["phases"]}
    return status["checkpoint"]["reason"], (entered["Resuming"] - entered["Choosing"]).total_seconds()


def resumed_at(recovery: Any) -> str | None:
    phases = recovery["status"].get("phases", [])
    return next((p["at"] for p in phases if p["phase"] == "Resuming"), None)


async def test_a_namespace_whose_pod_security_refuses_the_scan_is_told_in_its_words_at_once(
    control_plane: ControlPlane,
) -> None:
    async with trains(control_plane) as (stage, pod), restricted(stage):
        await stage.end(pod, exit_code=1)

        why, took_s = await unverified(stage)

        assert "403 Forbidden" in why
        assert 'violates PodSecurity "restricted:latest": restricted volume types' in why
        assert took_s < DEADLINE_S / 2


async def test_a_cluster_that_adds_a_container_to_every_pod_is_told_so_in_the_policys_words(
    control_plane: ControlPlane,
) -> None:
    async with trains(control_plane) as (stage, pod), meshed(stage):
        await stage.end(pod, exit_code=1)

        why, took_s = await unverified(stage)

        assert "additions that Rekindle did not make: a second container. If a webhook of this" in why
        assert took_s < DEADLINE_S / 2


async def test_the_scan_of_a_hostile_job_is_admitted_where_only_restricted_pods_are(
    control_plane: ControlPlane,
) -> None:
    async with trains(control_plane, job=hostile_job()) as (stage, pod), restricted(stage):
        await stage.end(pod, exit_code=1)

        scan = await stage.until("released scan", lambda: scan_of(stage))

        (container,) = scan["spec"]["containers"]
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/rekindle/volume"]
        assert container["command"][0] == "/opt/rekindle/bin/rekindle"
        who = scan["spec"]["securityContext"]
        assert (who["runAsNonRoot"], who["seLinuxOptions"]) == (True, {"level": "s0:c1,c2"})
        assert "runAsUser" not in who | container["securityContext"]
        await answered(stage, 90)
        assert await stage.until("choice", lambda: step_chosen(stage)) == 90
        (recovery,) = await recoveries(stage, "llm")
        assert recovery["status"]["checkpoint"]["path"] == "/opt/rekindle/step-90"


async def test_a_quota_without_room_for_the_scan_is_told_by_its_name_and_figures(
    control_plane: ControlPlane,
) -> None:
    async with trains(control_plane) as (stage, pod), quota(stage, **{"limits.cpu": "500m"}):
        await stage.end(pod, exit_code=1)

        why, took_s = await unverified(stage)

        assert (
            "exceeded quota: q, requested: limits.cpu=1, used: limits.cpu=0, limited: limits.cpu=500m" in why
        )
        assert took_s < DEADLINE_S


async def test_a_quota_that_was_full_of_the_old_pods_lets_the_scan_in_when_they_have_ended(
    control_plane: ControlPlane,
) -> None:
    async with trains(control_plane) as (stage, pod), quota(stage, pods="1"):
        await stage.xid_79(pod["spec"]["nodeName"])

        await answered(stage, 90)

        assert await stage.until("choice", lambda: step_chosen(stage)) == 90


async def test_what_somebody_else_has_put_into_the_environment_is_gone_when_the_gang_starts(
    control_plane: ControlPlane,
) -> None:
    foreign = {"metadata": {"name": ENVIRONMENT}, "data": {"LD_PRELOAD": "/checkpoints/x.so"}}
    async with trains(control_plane) as (stage, pod):
        await as_without_policy(control_plane, foreign)
        await stage.end(pod, exit_code=1)
        await answered(stage, 90)

        await stage.until("start", lambda: resumes_from(stage, "90"))

        data = (await stage.get(CONFIGMAPS, ENVIRONMENT, NAMESPACE))["data"]
        assert set(data) == {"REKINDLE_RECOVERY", "REKINDLE_RESUME_FROM", "REKINDLE_RESUME_STEP"}
        (note,) = await stage.until("Event", lambda: notes(stage, "VariablesRemoved"))
        assert note.startswith("LD_PRELOAD: ")
        assert ENVIRONMENT in note


async def as_without_policy(plane: ControlPlane, environment: dict[str, Any]) -> None:
    """Creates the ConfigMap as if it were older than the policies, or as if the chart left the policies
    out."""
    secret = (plane.folder / f"{CONTROLLER_NAME}.token").read_text(encoding="utf-8")
    credentials = Credentials(plane.url, token=secret, ca_file=str(plane.ca_file))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as controller:
        await controller.request("POST", CONFIGMAPS.path(namespace=NAMESPACE), body=environment)


async def resumes_from(stage: RealStage, step: str) -> bool:
    data = (await stage.get(CONFIGMAPS, ENVIRONMENT, NAMESPACE))["data"]
    return bool(data.get("REKINDLE_RESUME_STEP") == step)


async def notes(stage: RealStage, reason: str) -> list[str]:
    return [event["note"] for event in await stage.all(EVENTS, NAMESPACE) if event["reason"] == reason]


async def step_chosen(stage: RealStage) -> int | None:
    (recovery,) = await recoveries(stage, "llm")
    step: int | None = recovery["status"].get("checkpoint", {}).get("step")
    return step


async def test_a_scan_whose_image_is_missing_is_not_waited_for_until_the_deadline(
    control_plane: ControlPlane,
) -> None:
    back_off = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "rekindle:latest"'}
    async with trains(control_plane) as (stage, pod):
        await stage.end(pod, exit_code=1)
        await says_kubelet(stage, "Pending", {"waiting": back_off})

        why, took_s = await unverified(stage)

        assert why.endswith('ImagePullBackOff: Back-off pulling image "rekindle:latest"')
        assert took_s < DEADLINE_S


async def test_a_scan_that_is_killed_for_memory_is_told_so(control_plane: ControlPlane) -> None:
    async with trains(control_plane) as (stage, pod):
        await stage.end(pod, exit_code=1)
        await says_kubelet(stage, "Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})

        why, took_s = await unverified(stage)

        assert all(name in why for name in ("4Gi", "OOMKilled"))
        assert took_s < DEADLINE_S


async def test_a_scan_that_finds_no_node_is_told_in_the_schedulers_words_at_the_deadline(
    control_plane: ControlPlane,
) -> None:
    async with trains(control_plane, scan_deadline_s=SHORT_S) as (stage, pod):
        for node in await stage.all(NODES):
            await stage.patch(NODES, node["metadata"]["name"], {"spec": {"unschedulable": True}})
        await stage.end(pod, exit_code=1)

        why, took_s = await unverified(stage)

        assert f"{SHORT_S:g} s" in why
        assert "0/2 nodes are available" in why
        assert "2 node(s) were unschedulable" in why
        assert took_s >= SHORT_S


async def test_a_scan_that_may_write_is_gone_before_the_gang_may_write_there_again(
    control_plane: ControlPlane,
) -> None:
    allowed = {"rekindle.dev/checkpoint-repair": "tracker,set-aside"}
    async with trains(control_plane, scan_deadline_s=SHORT_S, annotations=allowed) as (stage, pod):
        await stage.end(pod, exit_code=1)
        scan = await stage.until("released scan", lambda: scan_of(stage))
        assert "readOnly" not in scan["spec"]["volumes"][0]["nfs"]
        node = await stage.until("a node for the scan", lambda: node_of_scan(stage))

        why, took_s = await unverified(stage)

        assert names(why, node)
        assert took_s >= SHORT_S
        assert await stage.all(PODS, NAMESPACE, SCANS) == []


async def node_of_scan(stage: RealStage) -> str:
    """Returns the node of the scan pod, or an empty string before the scan pod is placed."""
    scan = await scan_of(stage)
    return str(scan["spec"].get("nodeName", "")) if scan is not None else ""
