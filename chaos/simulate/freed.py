"""The safety invariant of pods that the controller frees, a part of invariants.py: only those of a gang that
is being recovered, and only where nothing of the pod can still run or write.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from chaos.cluster.kinds import Object
from chaos.cluster.store import Audit, MemoryCluster
from chaos.simulate.reading import (
    GANGS,
    OVER,
    RECREATES,
    SCAN_OF,
    gang_uid,
    has_failed,
    has_own_volume,
    is_fenced,
    node_of,
    owner,
    phase,
    ready_condition,
)
from chaos.simulate.truth import Truth
from recover.resources import NODES, RECOVERIES
from recover.settings import Timing

__all__ = ["FreedChecks"]


class FreedChecks:
    def __init__(self, store: MemoryCluster, truth: Truth) -> None:
        self._store = store
        self._truth = truth

    def wrote(self, audit: Audit, old: Object | None, new: Object | None, timing: Timing) -> Iterator[str]:
        """What is wrong with the controller's write on a pod. Its own scan pods are left out."""
        body = new or old
        assert body is not None
        if SCAN_OF in body["metadata"].get("labels", {}):
            return
        active = [r for r in self._store.objects(RECOVERIES) if phase(r) not in OVER]
        if not any(gang_uid(r) == owner(body) for r in active):
            yield "a pod was written whose gang is not being recovered"
        if self._clears_what_is_left(new) or _had_ended(body):
            return
        if body["metadata"]["uid"] in self._truth.running(owner(body)):
            yield "a pod was freed while its containers ran"
        node = next((n for n in self._store.objects(NODES) if n["metadata"]["name"] == node_of(body)), None)
        if node is None or is_fenced(node, body):
            return
        if has_own_volume(body):
            yield "a pod with a volume of its own was freed without a proof that its node is off"
        elif (silent_s := _silent_s(node, audit.at)) < timing.fence_wait_s:
            yield f"a pod was freed {silent_s:.0f} s after its node fell silent, of {timing.fence_wait_s:g} s"

    def _clears_what_is_left(self, pod: Object | None) -> bool:
        """A job that has failed for good cannot be suspended. The controller deletes its pods before it
        creates the job again."""
        if pod is None or pod["metadata"].get("deletionGracePeriodSeconds", 0) == 0:
            return False
        return any(
            gang["metadata"]["uid"] == owner(pod)
            and gang["metadata"].get("annotations", {}).get(RECREATES) == "recreate"
            and has_failed(gang)
            for kind in GANGS
            for gang in self._store.objects(kind)
        )


def _had_ended(pod: Object) -> bool:
    """The pod's kubelet has reported the end of each container, so none writes any more."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return bool(statuses) and all("terminated" in status.get("state", {}) for status in statuses)


def _silent_s(node: Object, at: datetime) -> float:
    """For how long the node has not been ready; 0 where it is."""
    ready = ready_condition(node)
    if ready["status"] == "True":
        return 0.0
    return (at - datetime.fromisoformat(ready["lastTransitionTime"])).total_seconds()
