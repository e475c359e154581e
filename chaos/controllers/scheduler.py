"""A small scheduler: it binds waiting pods to nodes by devices, taints and affinity. Like the default
scheduler of Kubernetes it knows no gangs: pods that fit are bound, and the others wait with a reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster, stamp
from chaos.controllers.base import Controller, with_condition
from chaos.controllers.placement import devices_of_node, devices_of_pod, preference, refusal
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import NODES, PODS

__all__ = ["Scheduler"]

_ALL = "all waiting pods"
_Place = tuple[str, str]


class Scheduler(Controller):
    """The scheduler is deterministic: it takes pods in the order of their creation or last change, and nodes
    by preference, by devices in use (fewest first), then by name. Between `nodes_stand_still` and
    `nodes_go_on` it sees existing nodes as they were, as a scheduler does whose watch of the nodes lags."""

    user = "scheduler"
    kinds = (NODES, PODS)

    def __init__(self, store: MemoryCluster) -> None:
        super().__init__(store)
        self._waiting: dict[_Place, None] = {}
        self._devices_of: dict[_Place, tuple[str, Counter[str]]] = {}
        self._in_use: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._seen: dict[str, Object] | None = None
        """The nodes as they were, by name, while the watch of the nodes lags."""

    def nodes_stand_still(self) -> None:
        self._seen = {node["metadata"]["name"]: node for node in self.store.objects(NODES)}

    def nodes_go_on(self) -> None:
        self._seen = None
        if self._waiting:
            self.queue.add(_ALL)

    def touched(self, resource: Resource, old: Object | None, new: Object | None) -> Iterator[str]:
        if resource == PODS:
            self._account(old, new)
        if self._waiting:
            yield _ALL

    def _account(self, old: Object | None, new: Object | None) -> None:
        body = new or old
        assert body is not None
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        self._waiting.pop(place, None)
        if place in self._devices_of:
            node, devices = self._devices_of.pop(place)
            self._in_use[node].subtract(devices)
        if new is None or new["status"]["phase"] in ("Succeeded", "Failed"):
            return
        node = new["spec"].get("nodeName", "")
        if node:
            self._devices_of[place] = (node, devices_of_pod(new))
            self._in_use[node].update(self._devices_of[place][1])
        elif not new["spec"].get("schedulingGates") and "deletionTimestamp" not in new["metadata"]:
            self._waiting[place] = None

    async def reconcile(self, key: str) -> float | None:
        nodes = self._nodes()
        for place in tuple(self._waiting):
            if place in self._waiting:
                await self._place(self.store.read(PODS, place[1], place[0]).body, nodes)
        return None

    def _nodes(self) -> list[Object]:
        nodes = self.store.objects(NODES)
        return nodes if self._seen is None else [self._seen.get(n["metadata"]["name"], n) for n in nodes]

    async def _place(self, pod: Object, nodes: list[Object]) -> None:
        reasons: Counter[str] = Counter()
        fitting: list[tuple[tuple[int, int], int, str]] = []
        for node in nodes:
            name = node["metadata"]["name"]
            used = self._in_use[name]
            why = refusal(pod, node, devices_of_node(node) - used)
            if why is None:
                fitting.append((preference(pod, node), used.total(), name))
            else:
                reasons[why] += 1
        if fitting:
            await self._bind(pod, min(fitting)[-1])
        else:
            await self._report(pod, _no_fit(len(nodes), reasons))

    async def _bind(self, pod: Object, node: str) -> None:
        meta = pod["metadata"]
        try:
            await self.api.patch(
                PODS,
                meta["name"],
                {"metadata": {"uid": meta["uid"]}, "spec": {"nodeName": node}},
                namespace=meta["namespace"],
            )
            await self._set_condition(pod, {"type": "PodScheduled", "status": "True"})
        except ApiError as error:
            if not (error.not_found or error.stale):
                raise

    async def _report(self, pod: Object, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        try:
            await self._set_condition(pod, condition)
        except ApiError as error:
            if not (error.not_found or error.stale):
                raise

    async def _set_condition(self, pod: Object, condition: Object) -> None:
        meta = pod["metadata"]
        now = {**condition, "lastTransitionTime": stamp(self.store.now())}
        conditions = with_condition(pod["status"].get("conditions", []), now)
        await self.api.patch(
            PODS,
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": {"conditions": conditions}},
            namespace=meta["namespace"],
            subresource="status",
        )


def _no_fit(nodes: int, reasons: Counter[str]) -> str:
    parts = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
    return f"0/{nodes} nodes are available: {parts}." if parts else "no nodes available to schedule pods"
