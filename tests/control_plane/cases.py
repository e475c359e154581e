"""Jobs for the cases of a recovery, and questions about them, on real controllers without agents. The test
reports the steps of a rank itself, as the agent of the rank's node would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from detectors.wire.training import Edge
from recover.k8s.kinds import (
    CONFIGMAPS,
    INCIDENTS,
    JOBS,
    NODES,
    PADDLEJOBS,
    PODS,
    PYTORCHJOBS,
    RECOVERIES,
    TFJOBS,
)
from recover.workloads.patches import MARK
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, now

__all__ = [
    "IN_STEP",
    "RECREATE",
    "cordons",
    "creation_s",
    "end_at_last",
    "ended",
    "goes_on",
    "hangs",
    "has_no_mark",
    "incident_of",
    "indexed_job",
    "is_suspended",
    "living",
    "no_trouble",
    "nodes_of",
    "on",
    "paddlejob",
    "patched",
    "pods_of",
    "pytorchjob",
    "recovered",
    "recoveries",
    "refusals",
    "seconds_later",
    "tfjob",
    "told_to",
    "trained",
    "uids",
    "writes_to",
]

OPTED_IN = {"rekindle.dev/auto-recovery": "enabled"}
RECREATE = {"rekindle.dev/on-terminal": "recreate"}
SLOW = {"left_s", "slots"}
"""Fields of warnings that a busy machine alone can cause and that mean no loss: the warning about a lease
that was not renewed, and the warning about an overloaded API server."""
IN_STEP = '"gangs":'
"""A field of the one line in the controller's log that says that its caches are up to date."""


def indexed_job(
    name: str,
    *,
    ranks: int = 2,
    gpus: int = 8,
    dying: str = "",
    labels: Mapping[str, str] = OPTED_IN,
    annotations: Mapping[str, str] = {},
    pod: Mapping[str, Any] = {},
    **spec: Any,
) -> dict[str, Any]:
    """Returns an Indexed Job. `dying` is explained in dying.yaml; `pod` and `spec` go into the pod's and the
    job's spec."""
    return {
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
        "spec": {
            "completionMode": "Indexed",
            "completions": ranks,
            "parallelism": ranks,
            "template": {
                "metadata": {"annotations": {"dying": dying} if dying else {}},
                "spec": {"restartPolicy": "Never", "containers": [_container("train", gpus)], **pod},
            },
            **spec,
        },
    }


def pytorchjob(
    name: str,
    restart_policy: str,
    *,
    workers: int = 1,
    dying: str = "",
    labels: Mapping[str, str] = OPTED_IN,
    annotations: Mapping[str, str] = {},
    finalizers: Sequence[str] = (),
    pod: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Returns a PyTorchJob with a master and its workers; `pod` goes into the spec of each pod."""
    meta = {"annotations": {"dying": dying} if dying else {}, "finalizers": list(finalizers)}
    template = {"metadata": meta, "spec": {"containers": [_container("pytorch", 8)], **pod}}
    master = {"replicas": 1, "restartPolicy": restart_policy, "template": template}
    return {
        "apiVersion": PYTORCHJOBS.api_version,
        "kind": PYTORCHJOBS.kind,
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
        "spec": {"pytorchReplicaSpecs": {"Master": master, "Worker": {**master, "replicas": workers}}},
    }


def paddlejob(
    name: str,
    restart_policy: str,
    *,
    workers: int = 2,
    dying: str = "143",
    labels: Mapping[str, str] = OPTED_IN,
) -> dict[str, Any]:
    """Returns a PaddleJob in collective mode, as in Paddle's own examples: it has only workers."""
    template = {
        "metadata": {"annotations": {"dying": dying}},
        "spec": {"containers": [_container("paddle", 8)]},
    }
    replica = {"replicas": workers, "restartPolicy": restart_policy, "template": template}
    return {
        "apiVersion": PADDLEJOBS.api_version,
        "kind": PADDLEJOBS.kind,
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"paddleReplicaSpecs": {"Worker": replica}},
    }


def tfjob(
    name: str,
    restart_policy: str,
    *,
    roles: Mapping[str, int],
    labels: Mapping[str, str] = OPTED_IN,
) -> dict[str, Any]:
    """Returns a TFJob with so many replicas of each role."""
    template = {
        "metadata": {"annotations": {"dying": "143"}},
        "spec": {"containers": [_container("tensorflow", 8)]},
    }
    replica = {"restartPolicy": restart_policy, "template": template}
    return {
        "apiVersion": TFJOBS.api_version,
        "kind": TFJOBS.kind,
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"tfReplicaSpecs": {role: {**replica, "replicas": n} for role, n in roles.items()}},
    }


def on(*hosts: str) -> dict[str, Any]:
    """Returns a pod spec that restricts the pod to these nodes."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _container(name: str, gpus: int) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


async def trained(
    stage: RealStage, job: Mapping[str, Any], resource: Resource = JOBS, ranks: int = 2
) -> list[Any]:
    """Creates the job, and returns its pods, each at step 100."""
    await stage.create(resource, job, NAMESPACE)
    pods = await stage.running(job["metadata"]["name"], ranks)
    for pod in pods:
        await stage.steps(pod, first=1, last=100)
    return pods


async def recovered(stage: RealStage, job: str, old: Sequence[Any]) -> Any:
    """Returns the Recovery, phase Succeeded, once the job's new pods run and one of them has made a step."""
    new = await stage.running(job, len(old), but=uids(old))
    await stage.steps(new[0], first=91, last=91)
    return await ended(stage, job, "Succeeded")


async def hangs(stage: RealStage, pods: list[Any]) -> None:
    """The rank on the living node waits for its peer. Nobody reports about the rank on the dead node."""
    for pod in pods:
        ready = next(
            c["status"]
            for c in (await stage.get(NODES, pod["spec"]["nodeName"]))["status"]["conditions"]
            if c["type"] == "Ready"
        )
        if ready == "True":
            health = await stage.health(pod["spec"]["nodeName"])
            stalled = [msgspec.structs.replace(p, edge=Edge.STALLED, at=now()) for p in health.pods]
            await stage.publish(pod["spec"]["nodeName"], pods=stalled)


async def ended(stage: RealStage, job: str, phase: str, reason: str | None = None) -> Any:
    """Returns the job's only Recovery, once the Recovery has reached that phase."""

    async def found() -> Any:
        mine = await recoveries(stage, job)
        assert len(mine) <= 1, [r["metadata"]["name"] for r in mine]
        return next((r for r in mine if r["status"]["phase"] == phase), None)

    recovery = await stage.until(f"{phase} of {job}", found)
    assert reason is None or recovery["status"].get("reason") == reason, recovery["status"]
    return recovery


async def goes_on(stage: RealStage, resource: Resource, job: str) -> None:
    """Waits until the job's framework controller reports Running and no other condition. The second of the
    framework controller's first two status writes may lose the condition Created, so Created may be
    absent."""

    async def runs() -> bool:
        status = (await stage.get(resource, job, NAMESPACE)).get("status", {})
        said = {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}
        return said - {"Created"} == {"Running"}

    await stage.until(f"{job} Running and nothing else", runs)


def creation_s(recovery: Any, pods: Sequence[Any]) -> float:
    """Returns the time in seconds from the order to start until the framework had created all these pods.
    The time that a busy machine then needs until the pods run is no wait of the framework."""
    phases = recovery["status"]["phases"]
    at = {entered["phase"]: datetime.fromisoformat(entered["at"]) for entered in phases}
    created = max(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    return (created - at["Resuming"]).total_seconds()


async def told_to(stage: RealStage, pod: Any) -> str:
    """Returns the name of the Recovery that the pod's container reads. The kubelet would set the variables in
    the same way: a later ConfigMap overrides an earlier one."""
    maps = {one["metadata"]["name"]: one.get("data", {}) for one in await stage.all(CONFIGMAPS, NAMESPACE)}
    variables: dict[str, str] = {}
    for source in pod["spec"]["containers"][0].get("envFrom", []):
        variables |= maps.get(source["configMapRef"]["name"], {})
    return variables.get("REKINDLE_RECOVERY", "")


async def recoveries(stage: RealStage, job: str) -> list[Any]:
    return [r for r in await stage.all(RECOVERIES, NAMESPACE) if r["spec"]["gang"]["name"] == job]


async def seconds_later(pods: Sequence[Any]) -> None:
    """Waits until a later second than the one in which these pods began. Kubernetes records whole seconds: a
    rank that ends in the very second in which its peers began may belong to a gang that was created again as
    a whole."""
    began = max(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    await asyncio.sleep(max(0.0, (began - now()).total_seconds() + 1))


async def is_suspended(stage: RealStage, job: str) -> bool:
    return bool((await stage.get(JOBS, job, NAMESPACE))["spec"].get("suspend"))


async def refusals(stage: RealStage, job: str) -> dict[str, str]:
    """Returns why the job was not restarted: the reason of each refusal, by incident."""
    return {
        incident["metadata"]["name"]: record["reason"]
        for incident in await stage.all(INCIDENTS)
        for record in incident.get("status", {}).get("actions", [])
        if record["action"] == "restart-gang"
        and record["target"].endswith(f"/{job}")
        and record["outcome"] == "refused"
    }


async def has_no_mark(stage: RealStage, resource: Resource, name: str) -> bool:
    """Whether the job lacks the mark of a Recovery. The last write of a Recovery to its job removes the
    mark."""
    return MARK not in (await stage.get(resource, name, NAMESPACE))["metadata"].get("annotations", {})


async def incident_of(stage: RealStage, recovery: Any) -> Any:
    return await stage.get(INCIDENTS, recovery["spec"]["incident"])


async def cordons(stage: RealStage) -> set[str]:
    return {n["metadata"]["name"] for n in await stage.all(NODES) if n["spec"].get("unschedulable")}


async def pods_of(stage: RealStage, job: str) -> list[Any]:
    return [
        pod
        for pod in await stage.all(PODS, NAMESPACE)
        if any(owner["name"] == job for owner in pod["metadata"].get("ownerReferences", []))
    ]


async def living(stage: RealStage, job: str) -> list[Any]:
    """Returns the job's pods that have not ended. The objects of ended pods may remain for a while."""
    return [pod for pod in await pods_of(stage, job) if pod["status"]["phase"] in ("Pending", "Running")]


async def patched(
    stage: RealStage, resource: Resource, name: str, body: Any, *, manager: str = "", subresource: str = ""
) -> None:
    """Patches the object as a person or another controller does, with that field manager."""
    path = resource.path(name, NAMESPACE, subresource)
    await stage.api.request(
        "PATCH",
        path,
        body=body,
        content_type="application/merge-patch+json",
        params={"fieldManager": manager} if manager else {},
    )


async def end_at_last(stage: RealStage, pods: Sequence[Any]) -> None:
    """Deletes pods that were stuck, as when their kubelets have ended them at last. Some may be gone already,
    and a new pod may have the name of an old one."""
    for pod in pods:
        path = PODS.path(pod["metadata"]["name"], NAMESPACE)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        with contextlib.suppress(ApiError):
            await stage.api.request("DELETE", path, body=body)


def writes_to(plane: ControlPlane, since: int, resource: Resource, name: str) -> list[str]:
    """Returns the verbs of the requests by which the controller has changed that object, of successful
    requests only."""
    return [
        write.verb
        for write in plane.audited(since)
        if "rekindle-controller" in write.user.username
        and (write.object_ref.resource, write.object_ref.name) == (resource.plural, name)
        and write.succeeded
    ]


def uids(pods: Sequence[Any]) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods]


def nodes_of(pods: Sequence[Any]) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods}


def no_trouble(stage: RealStage) -> None:
    """Asserts that the controller's log has no warning or error: nothing was refused, forbidden or
    unreadable."""
    lines = [msgspec.json.decode(line) for line in stage.controller.log.read_bytes().splitlines()]
    trouble = [line for line in lines if line["level"] in ("warning", "error") and not SLOW & line.keys()]
    assert trouble == [], trouble
