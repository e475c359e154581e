"""The gangs that benches run on a throwaway control plane, and the times at which a gang was stopped and ran
again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from chaos.bench.seen import GONE, Seen
from chaos.bench.sight import LIMIT_S, Sight
from chaos.bench.throwaway import GPUS_PER_NODE, NAMESPACE, POOL, Throwaway
from chaos.cluster import job_objects
from detectors.wire.contract import key
from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, JOBSETS, PADDLEJOBS, PODS, PYTORCHJOBS

__all__ = [
    "Gang",
    "RecoveryTimes",
    "crash",
    "indexed_job",
    "jobset",
    "paddlejob",
    "pytorchjob",
    "recovery_times",
    "runs",
]

_ENDED = {GONE, "Failed", "Succeeded"}


class Gang(msgspec.Struct, frozen=True):
    """A job that the bench creates."""

    resource: Resource
    name: str
    ranks: int
    body: Mapping[str, Any]
    owner: str
    """Name of the object that owns the pods."""


class RecoveryTimes(msgspec.Struct, frozen=True):
    """The moments at which each part of one recovery was visible to the observer, by this machine's wall
    clock."""

    stop_s: float
    gone_s: float
    """Moment at which the last old pod was gone, or had ended."""
    resume_s: float
    running_s: float
    """Moment at which all new pods ran."""


def pytorchjob(name: str, ranks: int, *, gpus: int = GPUS_PER_NODE, preferred: str = "") -> Gang:
    """Returns a PyTorchJob. `preferred` is a node on which ranks run if the scheduler can place them
    there."""
    pod = {"containers": [_container("pytorch", gpus)], **_affinity(preferred)}
    return Gang(PYTORCHJOBS, name, ranks, job_objects.pytorchjob(_metadata(name), pod, ranks=ranks), name)


def paddlejob(name: str, ranks: int, *, gpus: int = GPUS_PER_NODE, preferred: str = "") -> Gang:
    pod = {"containers": [_container("paddle", gpus)], **_affinity(preferred)}
    return Gang(PADDLEJOBS, name, ranks, job_objects.paddlejob(_metadata(name), pod, ranks=ranks), name)


def jobset(name: str, ranks: int, *, gpus: int = GPUS_PER_NODE, preferred: str = "") -> Gang:
    """Returns a JobSet with one Job, which owns the pods."""
    pod = {"containers": [_container("train", gpus)], **_affinity(preferred)}
    body = job_objects.jobset(_metadata(name), pod, ranks=ranks, max_restarts=3)
    return Gang(JOBSETS, name, ranks, body, f"{name}-ranks-0")


def indexed_job(
    name: str, ranks: int, *, gpus: int = GPUS_PER_NODE, preferred: str = "", pool: bool = False
) -> Gang:
    """Returns an Indexed Job. `pool` keeps the job to a few nodes, because a scheduler considers only a part
    of hundreds of nodes."""
    pod: dict[str, Any] = {"containers": [_container("train", gpus)], **_affinity(preferred)}
    if pool:
        pod["nodeSelector"] = POOL
    return Gang(JOBS, name, ranks, job_objects.indexed_job(_metadata(name), pod, ranks=ranks), name)


def _affinity(preferred: str) -> dict[str, Any]:
    if not preferred:
        return {}
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [preferred]}
    term = {"weight": 100, "preference": {"matchExpressions": [there]}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "labels": {key("auto-recovery"): "enabled"}}


def _container(name: str, gpus: int) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


async def runs(stage: Throwaway, gang: Gang, limit_s: float = LIMIT_S) -> dict[str, Seen]:
    """Creates the gang, waits until all its pods run, and returns the pods by uid."""
    await stage.create(gang.resource, gang.body, NAMESPACE)
    what = f"{gang.ranks} running pods"
    await stage.sight.until(what, lambda: len(_running(stage.sight, gang)) == gang.ranks, limit_s)
    return {seen.uid: seen for seen in _running(stage.sight, gang)}


def _running(sight: Sight, gang: Gang, but: Iterable[str] = ()) -> list[Seen]:
    pods = (seen for seen in sight.all(PODS.plural) if seen.owner == gang.owner and seen.uid not in but)
    return [seen for seen in pods if seen.facts == ("Running",)]


async def crash(stage: Throwaway, pod: Seen) -> None:
    """Sets the pod's status as its kubelet does after a permanent failure."""
    ended = {"exitCode": 1, "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    container = {"name": "pytorch", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
    await stage.patch(PODS, pod.name, {"status": status}, namespace=NAMESPACE, subresource="status")


async def recovery_times(
    stage: Throwaway, gang: Gang, old: Mapping[str, Seen], limit_s: float = LIMIT_S
) -> RecoveryTimes:
    """Waits until all pods of the gang run again, and returns the moments of the recovery. `old` are the pods
    before the fault, by uid."""
    sight = stage.sight
    await sight.until("gang running again", lambda: len(_running(sight, gang, old)) == gang.ranks, limit_s)
    stop_s = await sight.moment("stop", gang.resource.plural, gang.name, "suspended")
    resume_s = Sight.when(
        s
        for s in sight.events
        if (s.kind, s.name) == (gang.resource.plural, gang.name) and "started" in s.facts and s.at_s > stop_s
    )
    assert resume_s is not None, "it runs again, so it was started"
    gone, running = _first(sight, _ENDED), _first(sight, {"Running"})
    new = {seen.uid for seen in _running(sight, gang, old)}
    return RecoveryTimes(
        stop_s=stop_s,
        # The old pods include pods that the framework created in place of a failed pod before the stop.
        gone_s=max(at_s for uid, at_s in gone.items() if uid not in new),
        resume_s=resume_s,
        running_s=max(running[uid] for uid in new),
    )


def _first(sight: Sight, facts: set[str]) -> dict[str, float]:
    """Returns for each pod the moment at which the observer first saw it with one of these facts."""
    moments: dict[str, float] = {}
    for seen in sight.events:
        if seen.kind == PODS.plural and facts & {*seen.facts}:
            moments.setdefault(seen.uid, seen.at_s)
    return moments
