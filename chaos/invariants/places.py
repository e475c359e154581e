"""Computes how many GPUs a gang may seem to find in a view that may be late. A node counts if it took pods a
short time ago. A pod of another job uses GPUs only from a short time after its creation until its deletion is
requested."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster
from chaos.controllers.placement import GPU, devices_of_node, devices_of_pod
from chaos.simulated.reading import VIEW_MAX, lives, node_of, owner, takes_pods
from recover.k8s.kinds import NODES, PODS

__all__ = ["Places"]


class Places:
    def __init__(self, store: MemoryCluster) -> None:
        self._store = store
        self._closed: dict[str, tuple[datetime, int]] = {}
        """Nodes that take no pods: since when, and how many GPUs they have."""

    def saw(self, node: Object, at: datetime, *, is_gone: bool) -> None:
        """Records a write of a Node, by any writer."""
        name = node["metadata"]["name"]
        if takes_pods(node) and not is_gone:
            self._closed.pop(name, None)
        else:
            self._closed.setdefault(name, (at, devices_of_node(node)[GPU]))

    def count(self, job: Object, at: datetime, *, without: Collection[str] = ()) -> int:
        """Returns how many GPUs this job may seem to find, including those that it uses. Nodes in `without`
        do not count."""
        nodes = [node for node in self._store.objects(NODES) if takes_pods(node)]
        free = {node["metadata"]["name"]: devices_of_node(node)[GPU] for node in nodes}
        free |= {name: gpus for name, (since, gpus) in self._closed.items() if since > at - VIEW_MAX}
        for pod in self._store.objects(PODS):
            made_at = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            is_other = owner(pod) != job["metadata"]["uid"]
            stays = lives(pod) and "deletionTimestamp" not in pod["metadata"]
            if is_other and stays and node_of(pod) in free and made_at <= at - VIEW_MAX:
                free[node_of(pod)] -= devices_of_pod(pod)[GPU]
        return sum(max(0, gpus) for name, gpus in free.items() if name not in without)
