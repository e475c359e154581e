"""Models of node lifecycle, taint eviction and pod garbage collection: the effects of a node that died.

A node whose kubelet is silent becomes Unknown and gets a taint. Its pods are deleted after their toleration
and stay Terminating, because no kubelet confirms the deletion. Until the kubelet returns, only the deletion
of the Node, or the out-of-service taint, frees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster, stamp
from chaos.controllers.base import Controller, condition_of, with_condition
from chaos.controllers.placement import tolerates
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import LEASES, NODES, PODS

__all__ = ["NODE_LEASES", "OUT_OF_SERVICE", "UNREACHABLE", "LifecycleSettings", "NodeLifecycle"]

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NODE_LEASES = "kube-node-lease"
GONE_S = 40.0
"""Seconds within which a deleted Node may come back."""
OUT_OF_SERVICE_LOOK_S = 20.0
"""Seconds between two passes of the pod garbage collector."""
_TAINT_OF_READY = {"Unknown": UNREACHABLE, "False": NOT_READY}


class LifecycleSettings(msgspec.Struct, frozen=True):
    """Settings of the controller manager. The default is Kubernetes'."""

    silence_s: float = 50.0
    """Seconds of silence after which a kubelet's node becomes Unknown."""


class NodeLifecycle(Controller):
    """The keys are node names."""

    user = "node-controller"
    kinds = (NODES, LEASES, PODS)

    def __init__(self, store: MemoryCluster, settings: LifecycleSettings) -> None:
        super().__init__(store)
        self._settings = settings
        self._pods_on: dict[str, dict[tuple[str, str], None]] = {}
        self._gone_since: dict[str, datetime] = {}

    def touched(self, resource: Resource, old: Object | None, new: Object | None) -> Iterator[str]:
        body = new or old
        assert body is not None
        meta = body["metadata"]
        if resource == LEASES:
            if meta["namespace"] == NODE_LEASES and old is None:
                yield meta["name"]
            return
        if resource == PODS:
            node, place = body["spec"].get("nodeName", ""), (meta["namespace"], meta["name"])
            if new is None:
                self._pods_on.get(node, {}).pop(place, None)
            elif node:
                self._pods_on.setdefault(node, {})[place] = None
                if self._is_in_trouble(node):
                    yield node
            return
        yield meta["name"]

    def _is_in_trouble(self, name: str) -> bool:
        node = self._node(name)
        return node is None or bool(node["spec"].get("taints"))

    async def reconcile(self, key: str) -> float | None:
        node = self._node(key)
        if node is None:
            return await self._collect_orphans(key)
        self._gone_since.pop(key, None)
        silent_s = self._silent_s(key)
        ready = condition_of(node, "Ready")
        silent = silent_s is not None and silent_s >= self._settings.silence_s
        if silent and ready is not None and ready["status"] != "Unknown":
            await self._mark_unknown(node)
            return 0.0
        await self._taint(node, ready)
        waits = [await self._evict(node), await self._free_out_of_service(node, ready)]
        if silent_s is not None and silent_s < self._settings.silence_s:
            waits.append(self._settings.silence_s - silent_s)
        return min((wait for wait in waits if wait is not None), default=None)

    def _node(self, name: str) -> Object | None:
        try:
            return self.store.read(NODES, name).body
        except ApiError:
            return None

    def _pods(self, name: str) -> list[Object]:
        return [self.store.read(PODS, pod, namespace).body for namespace, pod in self._pods_on.get(name, {})]

    def _silent_s(self, name: str) -> float | None:
        """Returns the seconds since the kubelet renewed its lease. Returns None if it never had one."""
        try:
            lease = self.store.read(LEASES, name, NODE_LEASES).body
        except ApiError:
            return None
        renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
        return (self.store.now() - renewed).total_seconds()

    async def _mark_unknown(self, node: Object) -> None:
        unknown = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": stamp(self.store.now()),
        }
        conditions = with_condition(node["status"].get("conditions", []), unknown)
        name = node["metadata"]["name"]
        await self.api.patch(NODES, name, {"status": {"conditions": conditions}}, subresource="status")

    async def _taint(self, node: Object, ready: Object | None) -> None:
        """Keeps this controller's two taints in step with the Ready condition, and leaves all others."""
        old = node["spec"].get("taints", [])
        wanted = _TAINT_OF_READY.get(ready["status"], "") if ready is not None else ""
        kept = [t for t in old if t["key"] == wanted or t["key"] not in _TAINT_OF_READY.values()]
        present = {(t["key"], t["effect"]) for t in kept}
        if wanted:
            for effect in ("NoSchedule", "NoExecute"):
                if (wanted, effect) not in present:
                    at = stamp(self.store.now())
                    kept.append({"key": wanted, "effect": effect, "timeAdded": at})
        if kept != old:
            meta = node["metadata"]
            body = {
                "metadata": {"resourceVersion": meta["resourceVersion"]},
                "spec": {"taints": kept or None},
            }
            await self.api.patch(NODES, meta["name"], body)

    async def _evict(self, node: Object) -> float | None:
        """Deletes pods that do not tolerate a NoExecute taint, or whose toleration has run out. Returns the
        seconds until the next pod is due, or None."""
        soonest: float | None = None
        for taint in node["spec"].get("taints", []):
            if taint["effect"] != "NoExecute":
                continue
            for pod in self._pods(node["metadata"]["name"]):
                if "deletionTimestamp" in pod["metadata"] or _is_ended(pod):
                    continue
                left_s = self._tolerated_s(pod, taint)
                if left_s is not None and left_s <= 0:
                    await self._delete(pod)
                elif left_s is not None:
                    soonest = left_s if soonest is None else min(soonest, left_s)
        return soonest

    def _tolerated_s(self, pod: Object, taint: Object) -> float | None:
        """Returns how many seconds longer the pod may stay. Returns None if there is no limit."""
        toleration = tolerates(pod, taint)
        if toleration is None:
            return 0.0
        if "tolerationSeconds" not in toleration:
            return None
        allowed_s = float(toleration["tolerationSeconds"])
        added = taint.get("timeAdded")
        since = datetime.fromisoformat(added) if added else self.store.now()
        return allowed_s - (self.store.now() - since).total_seconds()

    async def _free_out_of_service(self, node: Object, ready: Object | None) -> float | None:
        """Deletes terminating pods by force if a person asserts that the machine is off."""
        asserted = any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints", []))
        if not asserted:
            return None
        if ready is not None and ready["status"] != "True":
            for pod in self._pods(node["metadata"]["name"]):
                if "deletionTimestamp" in pod["metadata"]:
                    await self._force_delete(pod)
        return OUT_OF_SERVICE_LOOK_S

    async def _collect_orphans(self, name: str) -> float | None:
        """Deletes the pods of a deleted Node by force, after a time in which the Node may come back."""
        if not self._pods_on.get(name):
            return None
        since = self._gone_since.setdefault(name, self.store.now())
        left_s = GONE_S - (self.store.now() - since).total_seconds()
        if left_s > 0:
            return left_s
        for pod in self._pods(name):
            await self._force_delete(pod)
        return None

    async def _force_delete(self, pod: Object) -> None:
        """Deletes a pod as PodGC does: the pod becomes Failed first, so that job controllers count it, and is
        then removed."""
        meta = pod["metadata"]
        if not _is_ended(pod):
            await self.api.patch(
                PODS,
                meta["name"],
                {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Failed", "reason": "PodGC"}},
                namespace=meta["namespace"],
                subresource="status",
            )
        await self._delete(pod, grace_s=0)

    async def _delete(self, pod: Object, grace_s: int | None = None) -> None:
        meta = pod["metadata"]
        try:
            await self.api.delete(
                PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_s=grace_s
            )
        except ApiError as error:
            if not (error.not_found or error.stale):
                raise


def _is_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")
