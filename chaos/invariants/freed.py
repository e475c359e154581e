"""Checks that the controller frees a pod only for a gang that is being recovered, and only if nothing of the
pod can still run or write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import (
    GANGS,
    RECREATES,
    SCAN_OF,
    gang_uid,
    has_failed,
    has_own_volume,
    is_active,
    is_fenced,
    node_of,
    owner,
    ready_condition,
)
from recover.k8s.kinds import PODS, RECOVERIES

__all__ = ["FreedPodsAreDead"]


class FreedPodsAreDead(Check):
    """The controller's own pods, of scans and repairs, are not checked.

    Harm if missed: a rank on a silent node still writes to the volume on which its successor trains.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != PODS or write.of_repair:
            return
        pod = write.body
        if SCAN_OF in pod["metadata"].get("labels", {}):
            return
        recoveries = self.facts.store.objects(RECOVERIES)
        if not any(is_active(recovery) and gang_uid(recovery) == owner(pod) for recovery in recoveries):
            yield "the controller changed a pod although no recovery of its gang is under way"
        if self._clears_what_is_left(write.new) or _had_ended(pod):
            return
        if pod["metadata"]["uid"] in self.facts.truth.running(owner(pod)):
            yield "a pod was freed while its containers ran"
        node, wait_s = self.facts.node(node_of(pod)), self.facts.settings.timing.fence_wait_s
        if node is None or is_fenced(node, pod):
            return
        if has_own_volume(pod):
            yield "a pod with its own volume was freed without a proof that its node is off"
        elif (silent_s := _silent_s(node, write.at)) < wait_s:
            yield f"a pod was freed {silent_s:.0f} s after its node fell silent; the limit is {wait_s:g} s"

    def _clears_what_is_left(self, pod: Object | None) -> bool:
        """Whether the controller deletes the pod without force, and the pod's job has failed permanently and
        may be created again. A job that has failed cannot be suspended, so the controller deletes its pods
        before it creates the job again."""
        if pod is None or pod["metadata"].get("deletionGracePeriodSeconds", 0) == 0:
            return False
        return any(
            gang["metadata"]["uid"] == owner(pod)
            and gang["metadata"].get("annotations", {}).get(RECREATES) == "recreate"
            and has_failed(gang)
            for kind in GANGS
            for gang in self.facts.store.objects(kind)
        )


def _had_ended(pod: Object) -> bool:
    """Whether the pod's kubelet has reported the end of each container, so that no container writes any
    more."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return bool(statuses) and all("terminated" in status.get("state", {}) for status in statuses)


def _silent_s(node: Object, at: datetime) -> float:
    """Returns the seconds for which the node has not been ready. Returns 0 if the node is ready."""
    ready = ready_condition(node)
    if ready["status"] == "True":
        return 0.0
    return (at - datetime.fromisoformat(ready["lastTransitionTime"])).total_seconds()
