"""The safety invariant of room for a gang, a part of invariants.py: a gang that cannot fit is not started.

The controller's view may be late: a node counts as long as it took pods a short time ago, and a pod of
somebody else takes its places only once it is not new any more, and until it is told to end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from chaos.cluster.kinds import Object
from chaos.cluster.placement import GPU, devices_of_node, devices_of_pod
from chaos.cluster.store import MemoryCluster
from chaos.simulate.reading import lives, node_of, owner, takes_pods
from recover.resources import NODES, PODS

__all__ = ["RoomChecks"]

_VIEW_MAX = timedelta(seconds=90)
"""How old the controller's view may be: a partition, slow answers, and watches that lag."""


class RoomChecks:
    def __init__(self, store: MemoryCluster) -> None:
        self._store = store
        self._left: dict[str, tuple[datetime, int]] = {}
        """Nodes that take no pods: since when, and how many GPUs they have."""

    def saw(self, old: Object | None, new: Object | None, at: datetime) -> None:
        """A write on a node, by anybody."""
        node = new or old
        assert node is not None
        name = node["metadata"]["name"]
        if new is not None and takes_pods(new):
            self._left.pop(name, None)
        else:
            self._left.setdefault(name, (at, devices_of_node(node)[GPU]))

    def started(self, job: Object, ranks: int, at: datetime) -> Iterator[str]:
        """What is wrong with the controller's start of this gang."""
        if (count := self.places(job, at)) < ranks:
            yield f"{job['metadata']['name']} was started although its {ranks} ranks find {count} places"

    def places(self, job: Object, at: datetime, *, without: Collection[str] = ()) -> int:
        """How many GPUs this gang may seem to find, those that it uses among them. Not on nodes `without`."""
        nodes = [node for node in self._store.objects(NODES) if takes_pods(node)]
        free = {node["metadata"]["name"]: devices_of_node(node)[GPU] for node in nodes}
        free |= {name: gpus for name, (since, gpus) in self._left.items() if since > at - _VIEW_MAX}
        for pod in self._store.objects(PODS):
            made_at = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            is_other = owner(pod) != job["metadata"]["uid"]
            stays = lives(pod) and "deletionTimestamp" not in pod["metadata"]
            if is_other and stays and node_of(pod) in free and made_at <= at - _VIEW_MAX:
                free[node_of(pod)] -= devices_of_pod(pod)[GPU]
        return sum(max(0, gpus) for name, gpus in free.items() if name not in without)
