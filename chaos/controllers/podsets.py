"""Code that the job controllers share: the pods of each job, creation and deletion of pods, job status."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster
from chaos.controllers.base import Controller, controller_uid
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import JsonPatch, Resource
from recover.k8s.kinds import PODS

__all__ = ["PodOwner", "is_active", "is_terminating", "phase_of", "pod_from"]


def phase_of(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def is_ended(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"] and not is_ended(pod)


def is_active(pod: Object) -> bool:
    return not is_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def pod_from(
    template: Object, *, labels: Mapping[str, str], name: str = "", generate_name: str = ""
) -> Object:
    """Returns a pod by a job's template, with the controller's labels added."""
    pod = copy.deepcopy(template)
    meta = pod.setdefault("metadata", {})
    for field in ("name", "namespace", "creationTimestamp"):
        meta.pop(field, None)
    meta |= {"name": name} if name else {"generateName": generate_name}
    meta["labels"] = {**meta.get("labels", {}), **labels}
    return pod


class PodOwner(Controller):
    """A controller whose keys are jobs (`namespace/name`) and that knows the pods of each."""

    resource: Resource

    def __init__(self, store: MemoryCluster) -> None:
        super().__init__(store)
        self._job_by_uid: dict[str, str] = {}
        self._pods_by_owner: dict[str, dict[tuple[str, str], None]] = {}

    async def reconcile_owner(self, job: Object, pods: list[Object]) -> float | None:
        raise NotImplementedError

    def touched(self, resource: Resource, old: Object | None, new: Object | None) -> Iterator[str]:
        body = new or old
        assert body is not None
        meta = body["metadata"]
        if resource == self.resource:
            key = f"{meta['namespace']}/{meta['name']}"
            self._job_by_uid[meta["uid"]] = key
            yield key
            return
        where = (meta["namespace"], meta["name"])
        was, now = (controller_uid(body) if body is not None else "" for body in (old, new))
        if was != now:
            self._pods_by_owner.get(was, {}).pop(where, None)
        if now:
            self._pods_by_owner.setdefault(now, {})[where] = None
        for owner in dict.fromkeys((was, now)):
            if owner in self._job_by_uid:
                yield self._job_by_uid[owner]

    async def reconcile(self, key: str) -> float | None:
        namespace, _, name = key.partition("/")
        try:
            job = self.store.read(self.resource, name, namespace).body
        except ApiError:  # the job was deleted; the garbage collector deletes the pods
            return None
        if "deletionTimestamp" in job["metadata"]:
            return None
        return await self.reconcile_owner(job, self.pods_of(job))

    def pods_of(self, job: Object) -> list[Object]:
        """Returns the pods in the order of their creation."""
        places = self._pods_by_owner.get(job["metadata"]["uid"], {})
        return [self.store.read(PODS, name, namespace).body for namespace, name in places]

    async def create_pod(self, pod: Object, job: Object) -> None:
        meta = job["metadata"]
        reference = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        pod["metadata"]["ownerReferences"] = [reference]
        await self.api.create(PODS, pod, meta["namespace"])

    async def delete_active(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            if is_active(pod):
                await self.delete_pod(pod)

    async def delete_pod(self, pod: Object) -> None:
        meta = pod["metadata"]
        try:
            await self.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
        except ApiError as error:
            if not error.not_found:
                raise

    async def write_status(self, job: Object, status: Object) -> None:
        """Replaces the status as a whole. An unchanged status is not written."""
        meta = job["metadata"]
        if status == job.get("status", {}):
            return
        await self.api.patch(
            self.resource,
            meta["name"],
            [
                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                {"op": "add", "path": "/status", "value": status},
            ],
            namespace=meta["namespace"],
            subresource="status",
            patch_type=JsonPatch,
        )
