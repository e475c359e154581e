"""Combines all views, and offers lookups in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import PODS_MAX, CoverageState, NodeHealth, Source
from detectors.wire.resource import Resource
from detectors.wire.training import Edge, PodProgress, Signature
from recover.api import Incident, Recovery
from recover.api.recipe_spec import Recipe
from recover.k8s.kinds import INCIDENTS, NODES
from recover.model.agents import AgentPod
from recover.model.gangs import Gang
from recover.model.judged_recipes import JudgedRecipe
from recover.model.modes import Modes
from recover.model.node_groups import GroupedNodes, NodeGroups
from recover.model.nodes import Node
from recover.model.pods import Bystander, Pod
from recover.model.subjects import Subjects

__all__ = ["DEPARTED_MAX", "REFUSED_AGAIN_S", "NamespaceView", "Refusal", "World", "place"]

DEPARTED_MAX = 16
"""Number of departed ranks that are remembered for each gang. One lost rank is enough for a diagnosis, and a
framework may replace its pods for weeks."""

REFUSED_AGAIN_S = 10.0
"""Pause between two tries of a refused write. Otherwise each change in the cluster would cause a try."""


class NamespaceView(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    """The refusal of a write, in the API server's own words."""

    at: datetime
    words: str
    may_pass: bool
    """Whether a later try may succeed: the API server was overloaded, or did not answer, or a webhook that it
    calls did not; or it did not know our permissions, as just after its start."""
    again_s: float = REFUSED_AGAIN_S
    """Pause after this refusal until the write is tried again."""

    def left_s(self, now: datetime) -> float:
        """Returns the seconds until the write is tried again. A refusal from the future is no reason to wait:
        the clock was set back."""
        passed_s = (now - self.at).total_seconds()
        return max(0.0, self.again_s - passed_s) if passed_s >= 0 else 0.0


def place(resource: Resource, name: str, namespace: str = "") -> str:
    """Returns the key of an object in `World.refused`. The kind is part of the key, because jobs of different
    frameworks may have the same name."""
    return f"{resource.plural}/{namespace}/{name}" if namespace else f"{resource.plural}/{name}"


class World(msgspec.Struct, frozen=True):
    """One consistent view of all caches. It copies nothing: after an await the caches, and with them the
    World, may have changed, so its user must not keep it across an await. It offers only lookups."""

    modes: Modes
    nodes: Mapping[str, Node]
    health: Mapping[str, NodeHealth]
    gangs: Mapping[str, Gang]
    """Gangs by uid."""
    pods_of: Mapping[str, Mapping[str, Pod]]
    """Gang uid -> pod uid -> pod."""
    scans: Mapping[str, Pod]
    """Scan pods by `namespace/name`."""
    namespaces: Mapping[str, NamespaceView]
    incidents: Mapping[str, Incident]
    recoveries: Mapping[str, Recovery]
    """Recoveries by `namespace/name`."""
    recoveries_of: Mapping[str, Mapping[str, Recovery]] = {}
    """Gang uid -> `namespace/name` -> recovery. A recovery whose gang was created again is under both
    uids."""
    indexed_active: Mapping[str, Recovery] | None = None
    """The active recoveries by `namespace/name`, as the controller keeps them. None: they are searched."""
    gangs_on: Mapping[str, frozenset[str]] = {}
    """Node name -> uids of the gangs with a pod bound to the node."""
    bystanders: Mapping[str, Mapping[str, Bystander]] = {}
    """Node name -> pod uid -> pod on that node that belongs to no gang."""
    repair_jobs: Mapping[str, Gang] = {}
    """The Jobs of repairs, in our own namespace, by name. They are no gangs."""
    departed: Mapping[str, Mapping[str, Pod]] = {}
    """Gang uid -> pod uid -> last known state of a pod that went away while its gang was meant to run: at
    most the last `DEPARTED_MAX` of a gang."""
    signalling: Mapping[str, Node] = {}
    """Nodes with a signal of another controller, by name."""
    complaining: Mapping[str, Mapping[str, Pod]] = {}
    """Node name -> pod uid -> pod with a device that the node's kubelet reports as unhealthy."""
    not_started: Mapping[str, Pod] = {}
    """Pods of jobs that their kubelet has refused or has not started yet, by uid."""
    parts_of: Mapping[str, Mapping[str, Gang]] = {}
    """Gang uid -> uid of a job that its framework has created for it -> that job."""
    refused: Mapping[str, Refusal] = {}
    """The refused writes, with the API server's last words since this process began. The key is the `place`
    of the object that could not be written, with `/status` at its end for the status of a Node, and `/id` for
    a request that an outside system refused."""
    being_quarantined: Collection[str] = ()
    """Nodes whose quarantine is being written: another loop has decided it, and it counts."""
    being_started: Collection[str] = ()
    """Uids of the gangs whose restart or start is being written. Triage and all recoveries decide at the same
    time."""
    recipes: Mapping[str, Recipe] = {}
    """The known issues by name: the built-in ones, and people's own."""
    signatures: tuple[Signature, ...] = ()
    """The log lines of people's own recipes, by name; the agents know those of the built-in recipes."""
    judged_recipes: tuple[JudgedRecipe, ...] = ()
    """People's Recipe objects, and whether each is used."""
    unread: Mapping[Resource, Collection[str]] = {}
    """Keys of objects that exist and cannot be read, for example because a newer version wrote them. Such an
    object is in no view here, and its absence does not prove that it is gone."""
    gone_nodes: Collection[str] = ()
    """Names of Nodes that are not in the cache, and that do not exist according to the API server. A name is
    removed once a Node of that name, or a pod newly bound to it, is seen."""
    agents: Mapping[str, AgentPod] = {}
    """The pod of each node's agent, by node name. A node without an agent is missing."""
    agents_are_pods: bool = False
    """True: a node without a ready pod of the agent is not watched. False: the agent's writes show whether it
    lives."""
    pool_label: str = ""
    """The label whose values are the nodes' pools."""
    indexed_subjects: Subjects | None = None
    """The subjects of the decisions, as the controller keeps them; None: everything."""
    counted: Mapping[tuple[str, str], int] | None = None
    """Number of accelerator nodes that have a label with that value. The empty label counts all of them.
    None: no number is kept."""
    pods_on: Mapping[tuple[str, str], Mapping[str, Pod]] | None = None
    """Gang uid and node name -> pod uid -> pod that is bound to the node. None: there is no such index."""
    new_pods_memo: dict[str, list[Pod]] | None = None
    """Gang uid -> the pods of its present start, if they were searched since the last change that they depend
    on (diagnose/starts.py). None: nothing is remembered, since nothing would remove outdated entries."""
    kept_groups: GroupedNodes | None = None
    """The nodes in groups, as the controller keeps them for the questions of `grouped`. None: nothing is
    kept."""

    @property
    def subjects(self) -> Subjects:
        """The subjects of a decision, in place of all nodes, reports and gangs."""
        if self.indexed_subjects is not None:
            return self.indexed_subjects
        uncached_nodes = self.gangs_on.keys() - self.nodes.keys()
        return Subjects(self.nodes, self.health, self.gangs, self.nodes, self.nodes, uncached_nodes)

    @property
    def active_recoveries(self) -> Collection[Recovery]:
        if self.indexed_active is not None:
            return self.indexed_active.values()
        return [recovery for recovery in self.recoveries.values() if recovery.active]

    def accelerated(self, label: str = "", value: str = "") -> int:
        """Returns the number of accelerator nodes, or the number of those that have the label with that
        value."""
        if self.counted is not None:
            return self.counted.get((label, value), 0)
        nodes = (node for node in self.nodes.values() if node.is_accelerated)
        return sum(1 for node in nodes if not label or node.labels.get(label) == value)

    def has_no_node(self, name: str) -> bool:
        """Whether it is proven that the Node does not exist. A Node that is only absent from the cache may
        exist."""
        return name in self.gone_nodes and not self._knows_node(name)

    def is_unsure_of_node(self, name: str) -> bool:
        """Whether the Node is not in the cache and was not read live yet."""
        return not self._knows_node(name) and name not in self.gone_nodes

    def _knows_node(self, name: str) -> bool:
        return name in self.nodes or name in self.unread.get(NODES, ())

    def is_unread(self, resource: Resource, namespace: str, name: str) -> bool:
        """Whether the object exists and cannot be read."""
        return f"{namespace}/{name}" in self.unread.get(resource, ())

    def refusal(self, resource: Resource, name: str, namespace: str = "") -> Refusal | None:
        return self.refused.get(place(resource, name, namespace))

    def has_no_incident(self, name: str) -> bool:
        return name not in self.incidents and name not in self.unread.get(INCIDENTS, ())

    def pods(self, gang_uid: str) -> list[Pod]:
        """Returns the gang's pods. A pod's reference to the gang can be forged, but only within the writer's
        own namespace."""
        gang = self.gangs.get(gang_uid)
        pods = self.pods_of.get(gang_uid, {}).values()
        return [p for p in pods if gang is None or p.namespace == gang.ref.namespace]

    def pods_at(self, gang_uid: str, node: str) -> list[Pod]:
        """Returns the gang's pods that are bound to the node. They are few, even in a gang of thousands."""
        if self.pods_on is None:
            return [pod for pod in self.pods(gang_uid) if pod.node == node]
        gang = self.gangs.get(gang_uid)
        pods = self.pods_on.get((gang_uid, node), {}).values()
        return [p for p in pods if gang is None or p.namespace == gang.ref.namespace]

    def pods_bound_to(self, node: str) -> Iterator[Pod]:
        """Yields all pods with an owner that are bound to the node, also those that claim to belong to a job
        of another namespace."""
        for uid in self.gangs_on.get(node, ()):
            pods = self.pods_of.get(uid, {}) if self.pods_on is None else self.pods_on.get((uid, node), {})
            yield from (pod for pod in pods.values() if pod.node == node)

    def grouped(self, question: Hashable, key_of: Callable[[Node], Hashable]) -> NodeGroups:
        """Returns the nodes in groups with the same key. The key of a node may depend on the node and on
        `pods_bound_to` it, and otherwise only on the question."""
        kept = self.kept_groups if self.kept_groups is not None else GroupedNodes()
        return kept.of(question, self.nodes, key_of)

    def parts(self, gang: Gang) -> list[Gang]:
        """Returns the jobs that the gang's framework has created for the gang, in the order of their names.
        Jobs of another namespace are left out."""
        found = self.parts_of.get(gang.ref.uid, {}).values()
        mine = [part for part in found if part.ref.namespace == gang.ref.namespace]
        return sorted(mine, key=lambda part: part.ref.name)

    def has_reached_deadline(self, gang: Gang) -> bool:
        """Whether the job, or one of the jobs that its framework has created for its present start, has
        reached the owner's deadline. The status of a JobSet does not say why one of its Jobs has failed."""
        parts = self.parts_of.get(gang.ref.uid, {}).values()
        present = (p for p in parts if p.restarts == gang.restarts and p.ref.namespace == gang.ref.namespace)
        ends = (job.terminal for job in (gang, *present) if job.terminal is not None)
        return any(terminal.is_meant and not terminal.succeeded for terminal in ends)

    def history(self, gang_uid: str) -> list[Recovery]:
        """Returns the gang's recoveries, oldest first. If Rekindle has created the job again, the recoveries
        of the earlier jobs are included. Recoveries of another namespace are left out."""
        gang = self.gangs.get(gang_uid)
        found = self._lineage(gang_uid).values()
        mine = [r for r in found if gang is None or r.metadata.namespace == gang.ref.namespace]
        return sorted(mine, key=lambda r: r.spec.number)

    def _lineage(self, gang_uid: str) -> dict[str, Recovery]:
        found: dict[str, Recovery] = {}
        uids = [gang_uid]
        maker = self._maker(gang_uid)
        if maker is not None:
            uids.append(maker.gang_uid)
        while uids:
            for name, recovery in self.recoveries_of.get(uids.pop(), {}).items():
                if name not in found:
                    found[name] = recovery
                    uids.append(recovery.spec.gang.uid)
        return found

    def _maker(self, gang_uid: str) -> Recovery | None:
        """Returns the recovery that has just created this job again and does not know its uid yet. The job's
        mark names the recovery; people may copy a mark, so the recovery must be creating a job of that name.
        """
        gang = self.gangs.get(gang_uid)
        if gang is None or gang.mark is None:
            return None
        recovery = self.recoveries.get(f"{gang.ref.namespace}/{gang.mark.recovery}")
        if (
            recovery is None
            or recovery.status.recreation is None
            or not recovery.status.recreation.definition
        ):
            return None
        same = msgspec.structs.replace(recovery.spec.gang, uid=gang_uid) == gang.ref
        return recovery if same and recovery.active else None

    def active_recovery(self, gang_uid: str) -> Recovery | None:
        return next((r for r in self.history(gang_uid) if r.active), None)

    def gangs_living_on(self, node: str) -> list[Gang]:
        """Returns the gangs with a living pod on that node, in a stable order."""
        found = []
        for uid in self.gangs_on.get(node, ()):
            gang = self.gangs.get(uid)
            if gang is not None and any(not pod.ended for pod in self.pods_at(uid, node)):
                found.append(gang)
        return sorted(found, key=lambda g: str(g.ref))

    def progress(self, pod: Pod) -> PodProgress | None:
        """Returns the progress of the pod's training, or None. A container beside the training container may
        print a step, too; its steps do not advance."""
        told = _newest([p for p in self._published(pod) if p.edge is not Edge.STARTED])
        if len(told) < 2:
            return told[0] if told else None
        return max(
            told,
            key=lambda p: (p.first_step is not None, p.last_step != p.first_step, p.at),
        )

    def containers(self, pod: Pod) -> list[PodProgress]:
        """Returns the last edge that the pod's node published for each container, of the newest instance."""
        return _newest(self._published(pod))

    def is_crowded(self, node: str) -> bool:
        """Whether the node's agent may leave out pods. An older agent does not report that it has cut its
        list, so a full list counts as cut."""
        health = self.health.get(node)
        if health is None:
            return False
        status = health.status
        return (
            status.pods_left_out
            or len(status.pods) >= PODS_MAX
            or any(
                row.source is Source.LOGS and row.state is CoverageState.COVERED and row.why
                for row in status.coverage
            )
        )

    def may_be_left_out(self, pod: Pod) -> bool:
        """Whether the agent may know more about this pod than it publishes: then a missing entry proves
        nothing."""
        return self.is_crowded(pod.node) and pod.uid not in self.health[pod.node].status.whole_pods

    def _published(self, pod: Pod) -> list[PodProgress]:
        health = self.health.get(pod.node)
        if health is None or not health.status.pods:
            return []
        return [p for p in health.status.pods if p.uid == pod.uid]


def _newest(told: list[PodProgress]) -> list[PodProgress]:
    """Returns the newest instance of each container. Most pods have one container."""
    if len(told) < 2:
        return told
    return list({p.container: p for p in sorted(told, key=lambda p: (p.instance, p.at))}.values())
