"""Makes a cluster as the controller's observer sees it, and changes of it, for test_subject_index.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from chaos.bench.scale import objects
from chaos.simulated.oracle import of_everything, unlike
from detectors.wire.resource import Resource
from detectors.wire.training import Edge, PodProgress
from recover.api.marks import UNHEALTHY
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS, RECOVERIES
from recover.model import World
from recover.model.actions import ConfirmGone, Plan
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.repair.means import load_means
from recover.repair.mend import repair
from recover.runtime.gauges import derive
from recover.runtime.observe import Observer
from recover.runtime.subject_index import SubjectIndex
from recover.runtime.telemetry import Metrics
from recover.triage.nodehealths import upkeep
from recover.triage.offers import Asked, offers
from recover.triage.plan import plan
from recover.triage.spares import keep_spares
from tests.recover.scripted import Scripted

__all__ = [
    "AUTO",
    "BORN",
    "CHANGES",
    "NODES_MAX",
    "NOW",
    "RANKS",
    "TEMPLATE",
    "Change",
    "Cluster",
    "confirm_gone",
    "job",
    "made_anew",
    "names",
    "node",
    "offered",
    "pod",
    "progress",
    "recovery",
]

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BORN = NOW - timedelta(hours=1)
TEMPLATE = "rekindle.dev/step-template"
AUTO = "rekindle.dev/auto-recovery"
NODES_MAX, GANGS, RANKS = 3, ("a", "b"), 2
RANK = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
Change = Callable[["Cluster"], None]


class Cluster:
    """A cluster as a controller sees it. Each method is one change."""

    def __init__(self, *, agents_are_pods: bool = True) -> None:
        self.settings = Settings(mode=Mode.REPAIR, agents_are_pods=agents_are_pods)
        self.observer = Observer(Scripted(), self.settings, lambda: None, lambda: NOW)
        self._modes = Modes(begun(Mode.REPAIR, BORN))
        self._versions = itertools.count(1)
        self._there: dict[tuple[Resource, str], dict[str, Any]] = {}
        self._spoilt: set[tuple[Resource, str]] = set()
        self.metrics = Metrics()

    # --- the objects --------------------------------------------------------------------------------------

    def put(self, resource: Resource, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        place = resource, f"{meta.get('namespace', '')}/{meta['name']}"
        self._there[place] = body
        self.observer.absorb(resource, objects.stored(resource, body, next(self._versions), BORN))
        self._spoilt.discard(place)
        assert sum(self.observer.unreadable().values()) == len(self._spoilt)

    def spoil(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Makes the object unreadable from now on, as if a newer version had written it."""
        place = resource, f"{namespace}/{name}"
        body = {"metadata": {"name": name, "labels": 7}}
        if namespace:
            body["metadata"]["namespace"] = namespace
        self._there[place] = body
        self._spoilt.add(place)
        self.observer.absorb(resource, objects.stored(resource, body, next(self._versions), BORN))

    def drop(self, resource: Resource, name: str, namespace: str = "") -> None:
        body = self._there.pop((resource, f"{namespace}/{name}"), None)
        if body is None:
            return
        self._spoilt.discard((resource, f"{namespace}/{name}"))
        gone = objects.stored(resource, body, next(self._versions), BORN)
        cache = self.observer._caches[resource]
        cache._forget(f"{namespace}/{name}" if namespace else name, _version(gone))

    # --- what the controller knows ------------------------------------------------------------------------

    def world(self) -> World:
        return self.observer.world(self._modes)

    def ask(self) -> None:
        while not self.observer.subject_index.has_no_open_question:
            self.observer.subject_index.ask(self.world(), NOW)

    def missed(self) -> int:
        """Returns the number of subjects that a complete sweep finds missing."""
        found = 0
        for _ in range(2):
            is_done = False
            while not is_done:
                missed, is_done = self.observer.subject_index.sweep(self.world(), NOW)
                found += missed
        return found

    def differences(self) -> Iterator[str]:
        means = load_means(self.settings.repair)
        decisions: tuple[Callable[[World, datetime], Plan], ...] = (
            lambda world, now: plan(world, self.settings, now),
            lambda world, _now: upkeep(world),
            keep_spares,
            lambda world, now: repair(world, self.settings, means, now),
        )
        world = self.world()
        for decide in decisions:
            for later in (timedelta(), timedelta(hours=3)):
                now = NOW + later
                yield from unlike(decide, world, now, decide(world, now))
        few, whole = (self._gauges(one) for one in (world, of_everything(world)))
        yield from sorted(few ^ whole)
        labels = (self.settings.budgets.pool_label, self.settings.budgets.domain_label)
        recounted = SubjectIndex(labels, self.settings.timing)
        for name, node in world.nodes.items():
            recounted.node_changed(name, None, node, None)
        assert recounted.counted == self.observer.subject_index.counted
        assert set(of_everything(world).subjects.uncached_nodes) == set(world.subjects.uncached_nodes)
        assert offered(world) == offered(of_everything(world))

    def _gauges(self, world: World) -> set[str]:
        derive(self.metrics, world, NOW, suspicion_s=3600.0)
        return {
            f"{sample.name}{sorted(sample.labels.items())}={sample.value}"
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if not sample.name.endswith("_created")
        }


def offered(world: World) -> dict[Hashable, set[str]]:
    """Returns the names of the nodes by what they offer to the ranks of the gangs."""
    asked = Asked(request=(("nvidia.com/gpu", 8),), priority=0)
    return {group.key: set(group.names) for group in offers(world, asked).groups}


def _version(raw: bytes) -> int:
    return int(msgspec.json.decode(raw)["metadata"]["resourceVersion"])


# --- the changes ------------------------------------------------------------------------------------------


def names() -> st.SearchStrategy[str]:
    return st.sampled_from([f"n{number}" for number in range(NODES_MAX)])


@st.composite
def node_changes(draw: st.DrawFn) -> Change:
    name = draw(names())
    if draw(st.integers(0, 5)) == 0:
        return lambda cluster: cluster.drop(NODES, name)
    if draw(st.integers(0, 5)) == 0:
        return lambda cluster: confirm_gone(cluster, name)
    body = node(name, ready=draw(st.integers(0, 2)) > 0)
    status = body["status"]
    if draw(st.integers(0, 4)) == 0:
        status.pop("allocatable"), status.pop("capacity")
    if draw(st.integers(0, 2)) == 0:
        note = {"incident": "i-0", "fault": "device-lost", "at": BORN.isoformat(), "cordoned": True}
        body["metadata"]["annotations"] = {"rekindle.dev/quarantined-by": msgspec.json.encode(note).decode()}
        body["spec"]["unschedulable"] = draw(st.booleans())
        body["spec"]["taints"] = [{"key": UNHEALTHY, "value": "x", "effect": "NoSchedule"}]
    if draw(st.integers(0, 4)) == 0:
        body["metadata"]["labels"]["rekindle.dev/spare"] = "true"
    if draw(st.integers(0, 4)) == 0:
        signal = {"type": "GpuUnhealthy", "status": "True", "lastTransitionTime": BORN.isoformat()}
        status["conditions"] = [*status.get("conditions", []), signal]
    return lambda cluster: cluster.put(NODES, body)


def node(name: str, *, ready: bool = True, note: str = "") -> dict[str, Any]:
    body = objects.node(name, int(name[1:]))
    body["metadata"]["annotations"] = {objects.NOTE: note}
    status = objects.node_status(name, BORN)
    if not ready:
        status["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": BORN.isoformat()}]
    return body | {"spec": {}, "status": status}


def confirm_gone(cluster: Cluster, name: str) -> None:
    asked = ConfirmGone(what="confirm-node-gone", resource=NODES, name=name)
    cluster.observer.asks_for(asked)
    cluster.observer.confirmed(asked)


@st.composite
def report_changes(draw: st.DrawFn) -> Change:
    name = draw(names())
    if draw(st.integers(0, 6)) == 0:
        return lambda cluster: cluster.drop(NODEHEALTHS, name)
    shown = [objects.finding(name, BORN, count=draw(st.integers(1, 2)))] if draw(st.booleans()) else []
    edges = {gang: draw(st.sampled_from([None, *Edge])) for gang in GANGS}
    told = [progress(gang, rank, edge) for gang, edge in edges.items() if edge for rank in range(RANKS)]
    status = objects.health_status(name, BORN, *shown, steps=told)
    if draw(st.integers(0, 4)) == 0:
        status = msgspec.structs.replace(
            status, pods_left_out=True, whole_pods=draw(st.sampled_from([[], ["a-0-uid"]]))
        )
    if draw(st.integers(0, 4)) == 0:
        status = msgspec.structs.replace(status, coverage=[])
    spec: dict[str, Any] = {"handsOff": "step"} if draw(st.integers(0, 6)) == 0 else {}
    body = {"metadata": {"name": name}, "spec": spec}
    return lambda cluster: cluster.put(
        NODEHEALTHS, body | {"status": msgspec.to_builtins(status, str_keys=True)}
    )


def progress(gang: str, rank: int, edge: Edge) -> PodProgress:
    steps = None if edge is Edge.STARTED else 1
    return PodProgress(
        uid=f"{gang}-{rank}-uid",
        namespace="ml",
        name=f"{gang}-{rank}",
        container="train",
        edge=edge,
        at=BORN,
        first_step=steps,
        last_step=steps,
    )


@st.composite
def job_changes(draw: st.DrawFn) -> Change:
    name = draw(st.sampled_from(GANGS))
    if draw(st.integers(0, 6)) == 0:
        return lambda cluster: cluster.drop(JOBS, name, "ml")
    annotations: dict[str, str] = {}
    if draw(st.integers(0, 2)) == 0:
        annotations[TEMPLATE] = "iter {step}/"
    if draw(st.integers(0, 4)) == 0:
        annotations["rekindle.dev/recovery"] = '{"recovery":"r-a","attempt":1,"did":"resumed"}'
    body = job(name, annotations, suspend=draw(st.integers(0, 4)) == 0, enabled=draw(st.booleans()))
    return lambda cluster: cluster.put(JOBS, body)


def job(
    name: str, annotations: dict[str, str] | None = None, *, suspend: bool = False, enabled: bool = True
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"{name}-uid",
        "labels": {AUTO: "enabled"} if enabled else {},
        "annotations": annotations or {},
    }
    spec = {
        "suspend": suspend,
        "completionMode": "Indexed",
        "completions": RANKS,
        "parallelism": RANKS,
        "template": {"spec": {"containers": [RANK], "restartPolicy": "Never"}},
    }
    return {"metadata": metadata, "spec": spec, "status": {}}


@st.composite
def pod_changes(draw: st.DrawFn) -> Change:
    gang, rank = draw(st.sampled_from(GANGS)), draw(st.integers(0, RANKS - 1))
    name = f"{gang}-{rank}"
    if draw(st.integers(0, 5)) == 0:
        return lambda cluster: cluster.drop(PODS, name, "ml")
    phase = draw(st.sampled_from(["Running", "Running", "Pending", "Creating", "Failed", "Succeeded"]))
    body = pod(gang, rank, draw(names()), phase=phase, deleting=draw(st.integers(0, 5)) == 0)
    return lambda cluster: cluster.put(PODS, body)


def pod(
    gang: str, rank: int, node_name: str, *, phase: str = "Running", deleting: bool = False, note: str = ""
) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": gang, "uid": f"{gang}-uid", "controller": True}
    metadata: dict[str, Any] = {
        "name": f"{gang}-{rank}",
        "namespace": "ml",
        "uid": f"{gang}-{rank}-uid",
        "annotations": {objects.NOTE: note},
        "ownerReferences": [owner],
    }
    if deleting:
        metadata["deletionTimestamp"] = BORN.isoformat()
    status = objects.running(BORN)
    status["phase"] = "Pending" if phase == "Creating" else phase
    (container,) = status["containerStatuses"]
    if phase in ("Failed", "Succeeded"):
        code = 1 if phase == "Failed" else 0
        container["state"] = {"terminated": {"exitCode": code, "finishedAt": BORN.isoformat()}}
    if phase == "Creating":
        container["state"] = {"waiting": {"reason": "ContainerCreating"}}
    return {"metadata": metadata, "spec": {"nodeName": node_name, "containers": [RANK]}, "status": status}


def made_anew(body: dict[str, Any]) -> dict[str, Any]:
    """Returns another pod of this name, whose watch did not report the end of the first pod."""
    return body | {"metadata": body["metadata"] | {"uid": "another-uid"}}


@st.composite
def agent_changes(draw: st.DrawFn) -> Change:
    node = draw(names())
    if draw(st.integers(0, 4)) == 0:
        return lambda cluster: cluster.drop(PODS, f"agent-{node}", "rekindle-system")
    status = objects.running(BORN)
    if draw(st.integers(0, 3)) == 0:
        for condition in status["conditions"]:
            condition["status"] = "False"
    return lambda cluster: cluster.put(PODS, objects.agent(node) | {"status": status})


@st.composite
def other_changes(draw: st.DrawFn) -> Change:
    kind = draw(st.integers(0, 2))
    if kind == 0:
        labels = {AUTO: "enabled"} if draw(st.booleans()) else {}
        return lambda cluster: cluster.put(NAMESPACES, {"metadata": {"name": "ml", "labels": labels}})
    gang = draw(st.sampled_from(GANGS))
    if kind == 1:
        if draw(st.integers(0, 3)) == 0:
            return lambda cluster: cluster.drop(RECOVERIES, f"r-{gang}", "ml")
        phase = draw(st.sampled_from(["Planned", "Stopping", "Fencing", "Verifying", "Succeeded"]))
        body = recovery(gang, phase, [f"{gang}-0-uid"[:8]] if draw(st.booleans()) else [])
        return lambda cluster: cluster.put(RECOVERIES, body)
    name = draw(names())
    spec = {"fault": "device-lost", "node": name, "detectedAt": BORN.isoformat()}
    phase = draw(st.sampled_from(["Open", "Closed"]))
    status = {"phase": phase, "blame": "node", "blamedNode": name}
    return lambda cluster: cluster.put(
        INCIDENTS, {"metadata": {"name": "i-0"}, "spec": spec, "status": status}
    )


@st.composite
def spoilt(draw: st.DrawFn) -> Change:
    """Makes an object unreadable, which may have been readable before."""
    gang = draw(st.sampled_from(GANGS))
    of_nodes, of_gangs = (NODES, NODEHEALTHS), {JOBS: gang, PODS: f"{gang}-0", RECOVERIES: f"r-{gang}"}
    resource = draw(st.sampled_from([*of_nodes, *of_gangs, NAMESPACES]))
    if resource in of_gangs:
        return lambda cluster: cluster.spoil(resource, of_gangs[resource], "ml")
    name = "ml" if resource == NAMESPACES else draw(names())
    return lambda cluster: cluster.spoil(resource, name)


def recovery(gang: str, phase: str, leftovers: list[str]) -> dict[str, Any]:
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ml", "name": gang, "uid": f"{gang}-uid"}
    spec = {
        "gang": about,
        "incident": "i-0",
        "fault": "device-lost",
        "number": 1,
        "detectedAt": BORN.isoformat(),
    }
    entered = {"phase": phase, "at": BORN.isoformat(), "attempt": 1}
    status = {"phase": phase, "attempt": 1, "phases": [entered], "leftovers": leftovers}
    return {"metadata": {"name": f"r-{gang}", "namespace": "ml"}, "spec": spec, "status": status}


CHANGES = st.one_of(
    *(node_changes(), report_changes(), job_changes(), pod_changes(), agent_changes(), other_changes()),
    spoilt(),
)
