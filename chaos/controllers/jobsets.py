"""A model of JobSet 0.11's controller, as far as it concerns a gang restart.

The controller creates a Job for each replica. A Job is suspended while the JobSet is. A Job that waits for
others by dependsOn is created once those others are complete or run. A failed Job increases the JobSet's
number of restarts if the failure policy allows it, and otherwise fails the JobSet permanently. The controller
deletes the Jobs of an older number of restarts and creates them again. Source: JobSet 0.11, and runs against
the real one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import datetime

from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster, stamp
from chaos.controllers.base import Controller, condition_of, controller_uid, with_condition
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import JsonPatch, Resource
from recover.k8s.kinds import JOBS, JOBSETS

__all__ = ["JobSetController"]

PREFIX = "jobset.sigs.k8s.io/"
ATTEMPT = PREFIX + "restart-attempt"
REACTS_AFTER_S = 1.2
"""Seconds from the failure of a Job's first pod until JobSet acts on the failed Job (measured)."""


class JobSetController(Controller):
    """The keys are JobSets, as `namespace/name`."""

    user = "jobset-controller"
    kinds = (JOBSETS, JOBS)

    def __init__(self, store: MemoryCluster) -> None:
        super().__init__(store)
        self._key_by_uid: dict[str, str] = {}
        self._failed_since: dict[tuple[str, int], datetime] = {}

    def touched(self, resource: Resource, old: Object | None, new: Object | None) -> Iterator[str]:
        body = new or old
        assert body is not None
        meta = body["metadata"]
        if resource == JOBSETS:
            self._key_by_uid[meta["uid"]] = f"{meta['namespace']}/{meta['name']}"
            yield self._key_by_uid[meta["uid"]]
        elif (owner := controller_uid(body)) in self._key_by_uid:
            yield self._key_by_uid[owner]

    async def reconcile(self, key: str) -> float | None:
        namespace, _, name = key.partition("/")
        try:
            jobset = self.store.read(JOBSETS, name, namespace).body
        except ApiError:  # the JobSet was deleted; the garbage collector deletes the Jobs
            return None
        if "deletionTimestamp" in jobset["metadata"] or jobset.get("status", {}).get("terminalState"):
            return None
        uid, status = jobset["metadata"]["uid"], dict(jobset.get("status", {}))
        jobs = [job for job in self.store.objects(JOBS, namespace) if controller_uid(job) == uid]
        present = [job for job in jobs if job["metadata"]["labels"].get(ATTEMPT) == _attempt(status)]
        again_in_s = self._judge(jobset, present, status)
        await self._write_status(jobset, status)
        if status == jobset.get("status", {}):
            await self._keep_jobs(jobset, jobs, present)
        return again_in_s

    async def _keep_jobs(self, jobset: Object, jobs: list[Object], present: list[Object]) -> None:
        for job in jobs:
            if job not in present and "deletionTimestamp" not in job["metadata"]:
                await self._delete(job)
        suspended = bool(jobset["spec"].get("suspend"))
        for job in present:
            if bool(job["spec"].get("suspend")) != suspended and not _is_over(job):
                meta = job["metadata"]
                body = {"metadata": {"uid": meta["uid"]}, "spec": {"suspend": suspended}}
                await self.api.patch(JOBS, meta["name"], body, namespace=meta["namespace"])
        taken = {job["metadata"]["name"] for job in jobs}
        for job in _wanted(jobset):
            if job["metadata"]["name"] not in taken and _is_due(jobset, job, present):
                await self.api.create(JOBS, job, jobset["metadata"]["namespace"])

    def _judge(self, jobset: Object, present: list[Object], status: Object) -> float | None:
        """Sets the status that follows from the ends of the Jobs. Returns the seconds until a failed Job is
        acted on, or None."""
        if any(_true(job, "Failed") or _true(job, "FailureTarget") for job in present):
            which = (jobset["metadata"]["uid"], int(_attempt(status)))
            since = self._failed_since.setdefault(which, self.store.now())
            left_s = REACTS_AFTER_S - (self.store.now() - since).total_seconds()
            if left_s > 0:
                return left_s
            self._restart_or_fail(jobset, status)
        elif len(present) == len(_wanted(jobset)) and all(_true(job, "Complete") for job in present):
            self._end(status, "Completed", "AllJobsCompleted")
        suspended = bool(jobset["spec"].get("suspend"))
        if suspended != _true({"status": status}, "Suspended"):
            self._set(status, "Suspended", "SuspendedJobs" if suspended else "ResumeJobs", str(suspended))
        return None

    def _restart_or_fail(self, jobset: Object, status: Object) -> None:
        allowed = jobset["spec"].get("failurePolicy", {}).get("maxRestarts", 0)
        counted = status.get("restartsCountTowardsMax", 0)
        if counted >= allowed:
            reason = "ReachedMaxRestarts" if "failurePolicy" in jobset["spec"] else "FailedJobs"
            self._end(status, "Failed", reason)
            return
        status |= {"restarts": status.get("restarts", 0) + 1, "restartsCountTowardsMax": counted + 1}

    def _end(self, status: Object, how: str, reason: str) -> None:
        status["terminalState"] = how
        self._set(status, how, reason, "True")

    def _set(self, status: Object, kind: str, reason: str, value: str) -> None:
        new = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": reason,
            "lastTransitionTime": stamp(self.store.now()),
        }
        status["conditions"] = with_condition(status.get("conditions", []), new)

    async def _delete(self, job: Object) -> None:
        meta = job["metadata"]
        asked = Deletion(uid=meta["uid"], propagation=Propagation.FOREGROUND)
        try:
            await self.api.remove(JOBS, meta["name"], asked, meta["namespace"])
        except ApiError as error:
            if not error.not_found:
                raise

    async def _write_status(self, jobset: Object, status: Object) -> None:
        meta = jobset["metadata"]
        if status == jobset.get("status", {}):
            return
        body = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        await self.api.patch(
            JOBSETS,
            meta["name"],
            body,
            namespace=meta["namespace"],
            subresource="status",
            patch_type=JsonPatch,
        )


def _attempt(status: Object) -> str:
    return str(status.get("restarts", 0))


def _true(body: Object, kind: str) -> bool:
    condition = condition_of(body, kind)
    return condition is not None and condition["status"] == "True"


def _is_over(job: Object) -> bool:
    return _true(job, "Complete") or _true(job, "Failed")


def _is_due(jobset: Object, job: Object, present: list[Object]) -> bool:
    """Whether all Jobs for which the job waits are complete, or run if that suffices."""
    replicated = {one["name"]: one for one in jobset["spec"]["replicatedJobs"]}
    for dependency in replicated[_role(job)].get("dependsOn", ()):
        there = [one for one in present if _role(one) == dependency["name"]]
        done = sum(1 for one in there if _true(one, "Complete") or _runs(one, dependency["status"]))
        if done < int(replicated[dependency["name"]].get("replicas", 1)):
            return False
    return True


def _runs(job: Object, wanted: str) -> bool:
    return wanted == "Ready" and job.get("status", {}).get("ready", 0) >= job["spec"]["parallelism"]


def _role(job: Object) -> str:
    role: str = job["metadata"]["labels"][PREFIX + "replicatedjob-name"]
    return role


def _wanted(jobset: Object) -> list[Object]:
    """Returns the Jobs of the present number of restarts. The label job-index counts the Jobs of one entry of
    replicatedJobs."""
    meta, status, jobs = jobset["metadata"], jobset.get("status", {}), []
    for replicated in jobset["spec"]["replicatedJobs"]:
        for index in range(int(replicated.get("replicas", 1))):
            labels = {
                PREFIX + "jobset-name": meta["name"],
                PREFIX + "jobset-uid": meta["uid"],
                PREFIX + "replicatedjob-name": replicated["name"],
                PREFIX + "job-index": str(index),
                ATTEMPT: _attempt(status),
            }
            jobs.append(_job(jobset, replicated, f"{meta['name']}-{replicated['name']}-{index}", labels))
    return jobs


def _job(jobset: Object, replicated: Object, name: str, labels: dict[str, str]) -> Object:
    spec = copy.deepcopy(replicated["template"]["spec"])
    pod = spec["template"].setdefault("metadata", {})
    pod["labels"] = {**pod.get("labels", {}), **labels}
    owner = {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "name": jobset["metadata"]["name"],
        "uid": jobset["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            **spec,
            "completionMode": "Indexed",
            "suspend": bool(jobset["spec"].get("suspend")),
        },
    }
