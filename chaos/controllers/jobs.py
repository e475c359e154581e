"""A model of the batch/v1 Job controller (Kubernetes 1.36), Indexed and plain, as far as it concerns a gang.

Failed pods are kept and counted, each failure doubles the wait before the next start, a suspension is not
counted, and a Job that is Failed stays Failed. Source: the Job controller, and runs against the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import stamp
from chaos.controllers.base import condition_of, with_condition
from chaos.controllers.podsets import PodOwner, is_active, is_terminating, phase_of, pod_from
from recover.k8s.kinds import JOBS, PODS

__all__ = ["JobController"]

BACKOFF_S = 10.0
BACKOFF_MAX_S = 600.0
INDEX = "batch.kubernetes.io/job-completion-index"


class _Count(msgspec.Struct):
    """Counts of one Job. The real controller keeps them in the pods' tracking finalizer."""

    pods: set[str] = msgspec.field(default_factory=set)
    failed: int = 0
    last_failure_at: datetime | None = None


class JobController(PodOwner):
    user = "job-controller"
    resource = JOBS
    kinds = (JOBS, PODS)

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._counts: dict[str, _Count] = {}

    async def reconcile_owner(self, job: Object, pods: list[Object]) -> float | None:
        if condition_of(job, "Complete") or condition_of(job, "Failed"):
            return None
        spec, status = job["spec"], dict(job.get("status", {}))
        count = self._counts.setdefault(job["metadata"]["uid"], _Count())
        self._count_failures(spec, pods, count)
        again_in_s = None
        succeeding = condition_of(job, "SuccessCriteriaMet") is not None
        if count.failed > spec["backoffLimit"] and not succeeding:
            await self._end(pods, status)
        elif self._completed(spec, pods):
            await self._complete(pods, status)
        elif spec.get("suspend"):
            await self._suspend(pods, status)
        else:
            self._resume(status)
            again_in_s = await self._start_missing(job, pods, count)
        await self._report(job, status, count)
        return again_in_s

    def _count_failures(self, spec: Object, pods: list[Object], count: _Count) -> None:
        """Counts failures. A pod counts once: when it has failed, or when somebody else deletes it. With the
        pod replacement policy Failed a deleted pod counts only when it has failed. A suspension is not
        counted."""
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if uid in count.pods or not (phase_of(pod) == "Failed" or is_terminating(pod)):
                continue
            if phase_of(pod) != "Failed" and spec["podReplacementPolicy"] == "Failed" and not spec["suspend"]:
                continue
            count.pods.add(uid)
            if spec.get("suspend") and "deletionTimestamp" in pod["metadata"]:
                continue
            count.failed += 1
            count.last_failure_at = self.store.now()

    def _completed(self, spec: Object, pods: list[Object]) -> bool:
        """Whether enough pods have succeeded. A work queue, which has no completions, is complete once a pod
        has succeeded and no pod is active."""
        done = len(_succeeded(spec, pods))
        if "completions" not in spec:
            return done > 0 and not any(is_active(pod) for pod in pods)
        return done >= int(spec["completions"])

    async def _end(self, pods: list[Object], status: Object) -> None:
        """Fails the Job permanently. The condition Failed is set only when all pods have ended."""
        why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        self._set(status, "FailureTarget", "True", *why)
        await self.delete_active(pods)
        if not any(is_active(pod) or is_terminating(pod) for pod in pods):
            self._set(status, "Failed", "True", *why)

    async def _complete(self, pods: list[Object], status: Object) -> None:
        await self.delete_active(pods)
        why = ("CompletionsReached", "Reached expected number of succeeded pods")
        self._set(status, "SuccessCriteriaMet", "True", *why)
        if not any(is_terminating(pod) for pod in pods):
            self._set(status, "Complete", "True", *why)
            status["completionTime"] = stamp(self.store.now())

    async def _suspend(self, pods: list[Object], status: Object) -> None:
        status.pop("startTime", None)
        self._set(status, "Suspended", "True", "JobSuspended", "Job suspended")
        await self.delete_active(pods)

    def _resume(self, status: Object) -> None:
        if any(c["type"] == "Suspended" and c["status"] == "True" for c in status.get("conditions", [])):
            self._set(status, "Suspended", "False", "JobResumed", "Job resumed")
        status.setdefault("startTime", stamp(self.store.now()))

    async def _start_missing(self, job: Object, pods: list[Object], count: _Count) -> float | None:
        missing = list(_missing(job["spec"], pods))
        if not missing:
            return None
        wait_s = self._backoff_left_s(count)
        if wait_s > 0:
            return wait_s
        for index in missing:
            await self.create_pod(_pod(job, index), job)
        return None

    def _backoff_left_s(self, count: _Count) -> float:
        if count.last_failure_at is None:
            return 0.0
        delay_s: float = min(BACKOFF_S * 2 ** (count.failed - 1), BACKOFF_MAX_S)
        return delay_s - (self.store.now() - count.last_failure_at).total_seconds()

    async def _report(self, job: Object, status: Object, count: _Count) -> None:
        pods = self.pods_of(job)
        status["active"] = sum(1 for pod in pods if is_active(pod))
        status["ready"] = sum(1 for pod in pods if is_active(pod) and phase_of(pod) == "Running")
        status["terminating"] = sum(1 for pod in pods if is_terminating(pod))
        status["failed"] = count.failed
        done = _succeeded(job["spec"], pods)
        status["succeeded"] = len(done)
        if job["spec"]["completionMode"] == "Indexed":
            status["completedIndexes"] = ",".join(sorted(done, key=int))
        await self.write_status(job, status)

    def _set(self, status: Object, kind: str, value: str, reason: str, message: str) -> None:
        at = stamp(self.store.now())
        new = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastProbeTime": at,
            "lastTransitionTime": at,
        }
        status["conditions"] = with_condition(status.get("conditions", []), new)


def _index_of(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(INDEX, pod["metadata"]["name"]))


def _succeeded(spec: Object, pods: list[Object]) -> set[str]:
    """Returns the completed indexes; for a plain Job the names of its succeeded pods."""
    found = {_index_of(pod) for pod in pods if phase_of(pod) == "Succeeded"}
    if spec["completionMode"] != "Indexed":
        return found
    return {index for index in found if int(index) < spec["completions"]}


def _missing(spec: Object, pods: list[Object]) -> Iterator[int | None]:
    """Yields the index of each pod to start, the lowest first, and None for each pod of a plain Job."""
    waits_for_the_old = spec["podReplacementPolicy"] == "Failed"
    held = [p for p in pods if is_active(p) or (waits_for_the_old and is_terminating(p))]
    room = spec["parallelism"] - len(held)
    done = _succeeded(spec, pods)
    if "completions" not in spec:  # a work queue starts no pod once one of its pods has succeeded
        yield from [None] * (0 if done else room)
        return
    if spec["completionMode"] != "Indexed":
        yield from [None] * min(room, spec["completions"] - len(done) - len(held))
        return
    taken = {_index_of(pod) for pod in held} | done
    free = [index for index in range(spec["completions"]) if str(index) not in taken]
    yield from free[: max(0, room)]


def _pod(job: Object, index: int | None) -> Object:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "job-name": name,
        "controller-uid": uid,
    }
    if index is None:
        return pod_from(job["spec"]["template"], generate_name=f"{name}-", labels=labels)
    pod = pod_from(
        job["spec"]["template"], generate_name=f"{name}-{index}-", labels={**labels, INDEX: str(index)}
    )
    pod["metadata"].setdefault("annotations", {})[INDEX] = str(index)
    pod["spec"].setdefault("hostname", f"{name}-{index}")
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    for container in pod["spec"]["containers"]:
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return pod
