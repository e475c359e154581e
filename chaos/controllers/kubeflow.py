"""A model of training-operator 1.9's controllers of PyTorchJobs, PaddleJobs and TFJobs, as far as it concerns
a gang restart.

A suspension deletes the pods without counting anything. A failed pod fails the job permanently or is
replaced; the restart policy of its replica decides. Source: training-operator 1.9.4, and runs against the
real one, which treats these kinds alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster, stamp
from chaos.controllers.base import condition_of, with_condition
from chaos.controllers.kubeflow_kinds import KubeflowKind, Replica
from chaos.controllers.podsets import PodOwner, is_active, phase_of, pod_from
from recover.k8s.kinds import PODS

__all__ = ["KubeflowController"]

PREFIX = "training.kubeflow.org/"
_EXCLUSIVE = {"Running": "Restarting", "Restarting": "Running"}
RETRYABLE_EXIT_CODE_MIN = 128


class KubeflowController(PodOwner):
    """The controller of one kind."""

    user = "training-operator"

    def __init__(self, store: MemoryCluster, kind: KubeflowKind) -> None:
        super().__init__(store)
        self._kind = kind
        self.resource = kind.resource
        self.kinds = (kind.resource, PODS)

    async def reconcile_owner(self, job: Object, pods: list[Object]) -> float | None:
        status = dict(job.get("status", {}))
        if _is(status, "Succeeded") or _is(status, "Failed"):
            await self._clean_up(job, pods)
            return None
        if condition_of(job, "Created") is None:
            self._set(status, "Created", "True", "is created.")
        if job["spec"].get("runPolicy", {}).get("suspend"):
            await self._suspend(pods, status)
        else:
            self._resume(status)
            await self._reconcile_pods(job, pods, status)
        await self.write_status(job, status)
        return None

    async def _clean_up(self, job: Object, pods: list[Object]) -> None:
        policy = job["spec"].get("runPolicy", {}).get("cleanPodPolicy", "None")
        if policy == "Running":
            await self.delete_active(pod for pod in pods if phase_of(pod) == "Running")
        elif policy == "All":
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    await self.delete_pod(pod)

    async def _suspend(self, pods: list[Object], status: Object) -> None:
        """Deletes all pods. Failed pods are deleted too, unlike those of a Job."""
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                await self.delete_pod(pod)
        if _is(status, "Running"):
            self._set(status, "Running", "False", "is suspended.", reason="Suspended")
        if not _is(status, "Suspended"):
            self._set(status, "Suspended", "True", "is suspended.")
        status.pop("startTime", None)
        status["replicaStatuses"] = {}

    def _resume(self, status: Object) -> None:
        if _is(status, "Suspended"):
            self._set(status, "Suspended", "False", "is resumed.", reason="Resumed")
            status.pop("startTime", None)
        status.setdefault("startTime", stamp(self.store.now()))

    async def _reconcile_pods(self, job: Object, pods: list[Object], status: Object) -> None:
        replicas = self._kind.replicas_of(job)
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        for replica in replicas:
            pod = by_name.get(_name(job, replica))
            if pod is None:
                await self.create_pod(self._pod(job, replica), job)
            elif self._is_final(pod, replica):
                self._fail(status, f"is failed because 1 {replica.role} replica(s) failed.")
            elif _has_failed(pod):
                why = f"is restarting because {replica.role} replica failed."
                self._set(status, "Restarting", "True", why)
                if "deletionTimestamp" not in pod["metadata"]:
                    await self.delete_pod(pod)
        if not _is(status, "Failed"):
            self._judge(job, replicas, by_name, status)
        status["replicaStatuses"] = _replica_statuses(job, replicas, by_name)

    def _judge(
        self, job: Object, replicas: list[Replica], by_name: dict[str, Object], status: Object
    ) -> None:
        """Judges the job by the pods that decide. Restarts that reach the limit fail the job; a limit of 0
        allows no restart (PastBackoffLimit in pkg/core/job.go)."""
        limit = job["spec"].get("runPolicy", {}).get("backoffLimit")
        if limit is not None and _restarts(by_name.values()) >= max(limit, 1):
            self._fail(status, "has failed because it has reached the specified backoff limit")
            return
        deciding = self._kind.deciding(replicas)
        phases = [phase_of(by_name[name]) for r in deciding if (name := _name(job, r)) in by_name]
        if len(phases) == len(deciding) and all(phase == "Succeeded" for phase in phases):
            status["completionTime"] = stamp(self.store.now())
            self._set(status, "Running", "False", "is successfully completed.", reason="Succeeded")
            self._set(status, "Succeeded", "True", "is successfully completed.")
        elif "Running" in phases and not any(_has_failed(pod) for pod in by_name.values()):
            self._set(status, "Running", "True", "is running.")

    def _fail(self, status: Object, why: str) -> None:
        status.setdefault("completionTime", stamp(self.store.now()))
        if _is(status, "Running"):
            self._set(status, "Running", "False", why, reason="Failed")
        self._set(status, "Failed", "True", why)

    def _is_final(self, pod: Object, replica: Replica) -> bool:
        """Whether the pod has failed the job permanently. A pod that is deleted while it runs fails a TFJob,
        and a job of another kind only under the policy Never."""
        if replica.policy == "Never" or (self._kind.fails_with_deleted_pods and phase_of(pod) == "Running"):
            return _has_failed(pod)
        if replica.policy != "ExitCode" or phase_of(pod) != "Failed":
            return False
        codes = [
            state["terminated"]["exitCode"]
            for status in pod["status"].get("containerStatuses", [])
            if "terminated" in (state := status.get("state", {}))
        ]
        return bool(codes) and max(codes) < RETRYABLE_EXIT_CODE_MIN

    def _pod(self, job: Object, replica: Replica) -> Object:
        labels = {
            PREFIX + "job-name": job["metadata"]["name"],
            PREFIX + "operator-name": f"{self.resource.kind.lower()}-controller",
            PREFIX + "replica-type": replica.role.lower(),
            PREFIX + "replica-index": str(replica.index),
        }
        if replica.role == "Master":
            labels[PREFIX + "job-role"] = "master"
        pod = pod_from(replica.template, name=_name(job, replica), labels=labels)
        pod["spec"]["restartPolicy"] = "Never" if replica.policy == "ExitCode" else replica.policy
        for container in pod["spec"]["containers"]:
            container.setdefault("env", []).extend(self._kind.variables_of(job, replica))
        return pod

    def _set(self, status: Object, kind: str, value: str, message: str, *, reason: str = "") -> None:
        at = stamp(self.store.now())
        new = {
            "type": kind,
            "status": value,
            "reason": f"{self.resource.kind}{reason or kind}",
            "message": f"{self.resource.kind} {message}",
            "lastTransitionTime": at,
            "lastUpdateTime": at,
        }
        conditions = status.get("conditions", [])
        old = next((c for c in conditions if c["type"] == kind), None)
        if old is not None and (old["status"], old["reason"]) == (value, new["reason"]):
            return
        if value == "True":
            conditions = [c for c in conditions if c["type"] != _EXCLUSIVE.get(kind)]
        status["conditions"] = with_condition(conditions, new)


def _is(status: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", []))


def _has_failed(pod: Object) -> bool:
    """Whether the pod has failed. The training-operator treats a pod that is deleted while it runs as a
    failed one."""
    return phase_of(pod) == "Failed" or (phase_of(pod) == "Running" and not is_active(pod))


def _restarts(pods: Iterable[Object]) -> int:
    return sum(
        status.get("restartCount", 0)
        for pod in pods
        if phase_of(pod) == "Running"
        for status in pod["status"].get("containerStatuses", [])
    )


def _name(job: Object, replica: Replica) -> str:
    return f"{job['metadata']['name']}-{replica.role.lower()}-{replica.index}"


def _replica_statuses(
    job: Object, replicas: list[Replica], by_name: dict[str, Object]
) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    fields = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
    for replica in replicas:
        of_role = counts.setdefault(replica.role, {})
        pod = by_name.get(_name(job, replica))
        field = fields.get(phase_of(pod), "") if pod is not None else ""
        if field:
            of_role[field] = of_role.get(field, 0) + 1
    return counts
