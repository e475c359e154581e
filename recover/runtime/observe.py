"""Turns API objects into a World. Reflectors fill the caches (cache.py) with what is kept of each object
(kept.py), and the caches fill the indexes that decisions use for lookups.

The answer to a write is absorbed here too, so a decision never acts on a view that is older than our own last
write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from detectors.wire.contract import NodeHealth
from detectors.wire.resource import Resource
from recover.api import Incident, Recovery
from recover.k8s.kinds import (
    CONFIGMAPS,
    INCIDENTS,
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PODS,
    RECIPES,
    RECOVERIES,
)
from recover.kube.cluster import Cluster
from recover.kube.reflector import Reflector
from recover.model import AgentPod, Bystander, Gang, Node, Pod, PodPhase, Refusal, World, decode
from recover.model.actions import ConfirmGone
from recover.model.agent_readiness import AgentPods
from recover.model.modes import Modes
from recover.model.pause import PAUSE, Pause, read_pause, unread_pause
from recover.policy.settings import Settings
from recover.recipes.load import built_in
from recover.recipes.objects import seen, settle
from recover.recovery.scan_pod import scan_label
from recover.runtime.bounds import Room
from recover.runtime.cache import Cache
from recover.runtime.device_maps import DeviceMaps
from recover.runtime.few import Few
from recover.runtime.kept import Kept
from recover.runtime.pod_index import PodIndex, is_scan
from recover.runtime.refusals import Refusals, Write, is_our_own_record
from recover.workloads import WORKLOADS

__all__ = ["Observer"]

DEPARTED_MAX = 16
"""Number of departed ranks that are remembered for each gang. The first lost rank is enough for a diagnosis,
and a framework may replace its pods for weeks."""

LARGE = 64
"""Number of pods above which a gang is large: single changes of its pods then matter little."""
GONE_NODES_MAX = 20_000
"""Maximum number of remembered Nodes that do not exist: twice the nodes of the largest cluster. A forgotten
name is read again if it still matters."""


class Observer:
    """All caches and reflectors.

    After every difference that a decision may read, the observer calls one of three callbacks: `of_gang`,
    with the uid of a gang whose recovery waits for the change; `soon`, if no fault and no recovery waits for
    the decision; otherwise `changed`. `now` dates the reports of other vendors' device plugins that contain
    no time.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        changed: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        soon: Callable[[], None] | None = None,
        of_gang: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._now = now
        self._notify = changed
        self._notify_soon = soon or changed
        self._notify_gang = of_gang or (lambda _uid: changed())
        labels = (settings.budgets.pool_label, settings.budgets.domain_label)
        self.few = Few(labels, settings.timing)
        self._gangs: dict[str, Gang] = {}
        self._pods = PodIndex()
        self._departed: dict[str, dict[str, Pod]] = {}
        self._recoveries_of: dict[str, dict[str, Recovery]] = {}
        self._parts_of: dict[str, dict[str, Gang]] = {}
        self._repair_jobs: dict[str, Gang] = {}
        self._agents = AgentPods()
        self.refusals = Refusals()
        self._asked_nodes: set[str] = set()
        """Nodes that are being read live because they are not in the cache."""
        self._gone_nodes: dict[str, None] = {}
        self.device_maps = DeviceMaps(cluster, settings.signals.reports, self._report_change, now)
        self._kept = Kept(settings, self._pods, self._recoveries_of, self.device_maps.added)
        self.nodes = Cache(NODES, self._kept.node, self._node_change)
        self._signalling: dict[str, Node] = {}
        self.health = Cache(NODEHEALTHS, self._kept.health, self._health_change)
        self.namespaces = Cache(NAMESPACES, decode.namespace, self._namespace_change)
        self.incidents = Cache(INCIDENTS, msgspec.json.Decoder(Incident).decode, self._any_change)
        self.recoveries = Cache(
            RECOVERIES,
            msgspec.json.Decoder(Recovery).decode,
            self._recovery_change,
            room=Room("recoveries", settings.room.recoveries_mib),
        )
        self._built_in = built_in()
        self._in_force = settle(self._built_in, ())
        self.recipes = Cache(RECIPES, seen, self._recipe_change)
        self.pods: Cache[Pod | Bystander | AgentPod] = Cache(
            PODS, self._kept.pod, self._pod_change, room=Room("pods", settings.room.pods_mib)
        )
        jobs = Room("jobs", settings.room.jobs_mib)
        self.workloads = [
            Cache(
                w.resource,
                partial(self._kept.gang, w),
                self._gang_change,
                room=jobs,
                outline=partial(self._kept.outlined, w.resource),
            )
            for w in WORKLOADS
        ]
        caches: tuple[Cache[Any], ...] = (
            self.nodes,
            self.health,
            self.namespaces,
            self.incidents,
            self.recoveries,
            self.recipes,
            self.pods,
            *self.workloads,
        )
        self._caches = {cache.resource: cache for cache in caches}
        self._pause = Cache(CONFIGMAPS, read_pause, self._any_change)
        optional = {RECIPES, *(cache.resource for cache in self.workloads)}
        self.reflectors = [
            Reflector(cluster, resource, cache, optional=resource in optional)
            for resource, cache in self._caches.items()
        ]
        self.reflectors.append(
            Reflector(
                cluster,
                CONFIGMAPS,
                self._pause,
                namespace=settings.namespace,
                fields=f"metadata.name={PAUSE}",
            )
        )

    async def synced(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()
        await self.device_maps.synced()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in (*self.reflectors, *self.device_maps.reflectors):
                group.create_task(reflector.run())

    def absorb(self, resource: Resource, raw: bytes) -> None:
        """Takes the answer to one of our own writes. Kinds that the controller does not watch are ignored."""
        cache = self._caches.get(resource)
        if cache is not None:
            cache.absorb(raw)

    def refused(self, action: Write, refusal: Refusal) -> bool:
        """Keeps the refusal of a write that no object shows: a write to a kind of others, or a Recovery that
        cannot be opened or cannot get a further cause. Returns False for any other write. The first refusal
        wakes all decisions; later refusals change only its text."""
        if is_our_own_record(action):
            return False
        if self.refusals.keep(action, refusal):
            self._notify()
        return True

    def learned(self, resource: Resource, raw: bytes) -> bool:
        """Takes the answer to a live read. Returns True if the answer contains something new that decisions
        may read."""
        return self._caches[resource].learned(raw)

    def asks_for(self, asked: ConfirmGone) -> None:
        """Notes that an object is about to be read live. Call this before the read."""
        if asked.resource == NODES:
            self._asked_nodes.add(asked.name)

    def confirmed(self, asked: ConfirmGone) -> bool:
        """Notes that the API server has no such object. Returns False if the object has arrived meanwhile:
        the answer may be older than the object."""
        key = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
        is_here = key in self._caches[asked.resource].rows
        if asked.resource != NODES or is_here:
            return not is_here or bool(asked.uid)
        if asked.name not in self._asked_nodes:
            return False
        self._asked_nodes.discard(asked.name)
        if asked.name not in self._gone_nodes:
            self._gone_nodes[asked.name] = None
            if len(self._gone_nodes) > GONE_NODES_MAX:
                del self._gone_nodes[next(iter(self._gone_nodes))]
            self._touch_gangs_on(asked.name)
            self._notify()
        return True

    def _may_exist(self, node: str) -> None:
        """Forgets the result of a live read of a node once a newer object names the node."""
        self._asked_nodes.discard(node)
        self._gone_nodes.pop(node, None)

    def pause(self) -> Pause | None:
        """Returns the pause as people have written it, whether or not it has ended by itself."""
        key = f"{self._settings.namespace}/{PAUSE}"
        if why := self._pause.unreadable.get(key):
            return unread_pause(why)
        return self._pause.rows.get(key)

    def unreadable(self) -> dict[str, int]:
        """Returns the number of skipped objects, by kind."""
        found = {cache.resource.kind: len(cache.unreadable) for cache in self._caches.values()}
        return {**found, CONFIGMAPS.kind: self.device_maps.unreadable()} if self.device_maps.is_on else found

    def has_scan(self, recovery: Recovery) -> bool:
        """Whether a scan pod of that recovery still exists."""
        return self._pods.has_scan(recovery.metadata.namespace, scan_label(recovery))

    def has_mark(self, recovery: Recovery) -> bool:
        """Whether the job carries the recovery's mark: then this recovery was the last to stop or start the
        job."""
        gang = self._gangs.get(recovery.gang_uid)
        return gang is not None and gang.mark is not None and gang.mark.recovery == recovery.metadata.name

    def recoveries_of(self, gang_uid: str) -> Mapping[str, Recovery]:
        """Returns the gang's recoveries by `namespace/name`."""
        return self._recoveries_of.get(gang_uid, {})

    def world(self, modes: Modes, taking: Collection[str] = ()) -> World:
        """Returns the World of this moment. `taking` contains the nodes whose quarantine is being written
        (Executor.taking)."""
        return World(
            modes=modes,
            nodes=self.nodes.rows,
            health=self.health.rows,
            gangs=self._gangs,
            pods_of=self._pods.pods_of,
            scans=self._pods.scans,
            namespaces=self.namespaces.rows,
            incidents=self.incidents.rows,
            recoveries=self.recoveries.rows,
            recoveries_of=self._recoveries_of,
            gangs_on=self._pods.gangs_on,
            bystanders=self._pods.bystanders,
            repair_jobs=self._repair_jobs,
            departed=self._departed,
            signalling=self._signalling,
            complaining=self._pods.complaining,
            not_started=self._pods.not_started,
            parts_of=self._parts_of,
            refused=self.refusals.by_place,
            taking=taking,
            gone_nodes=self._gone_nodes.keys(),
            recipes=self._in_force.recipes,
            signatures=self._in_force.signatures,
            judged_recipes=self._in_force.judged,
            unread={cache.resource: cache.unreadable.keys() for cache in self._caches.values()},
            agents=self._agents.by_node,
            agents_are_pods=self._settings.agents_are_pods,
            pool_label=self._settings.budgets.pool_label,
            few=self.few.subjects,
            counted=self.few.counted,
            pods_on=self._pods.pods_on,
            present=self.few.present,
        )

    # --- the indexes ----------------------------------------------------------------------------------------

    def _report_change(self, node: str) -> None:
        self.nodes.revise(node, self.device_maps.added)

    def _any_change(self, _key: str, _old: object, _new: object) -> None:
        self._notify()

    def _namespace_change(self, name: str, _old: object, _new: object) -> None:
        """Takes a change of a namespace. Its label or annotation may now give consent for all its jobs."""
        for uid, gang in self._gangs.items():
            if gang.ref.namespace == name:
                self._touch_gang(uid)
                self._tell_agents_of(uid)
        self._notify()

    def _health_change(self, name: str, old: NodeHealth | None, new: NodeHealth | None) -> None:
        """Takes a change of a node's report. The agents of a large cluster write at any time about steps and
        about themselves. The loops reconcile at once only if the node is out of the ordinary, or if a
        recovery waits for the change."""
        was_looked_at = self.few.is_looked_at(name)
        self.few.report_changed(name, self.nodes.rows.get(name), new)
        if _tells_of_pods(old) != _tells_of_pods(new) or not self._settings.agents_are_pods:
            self._touch_gangs_on(name)
        waits = new is not None and any(pod.awaits_save for pod in new.spec.pods)
        is_urgent = was_looked_at or self.few.is_looked_at(name) or waits
        self._wake(self._pods.gangs_on.get(name, ()), is_urgent=is_urgent)

    def _node_change(self, name: str, old: Node | None, new: Node | None) -> None:
        """Takes a change of a Node. Each kubelet reports every few minutes, so 10,000 kubelets write 30
        reports a second. A report that contains nothing new for a decision wakes no loop."""
        if new is not None:
            self._may_exist(new.name)
        for node in (old, new):
            if node is not None:
                self._signalling.pop(node.name, None)
        if new is not None and new.signals:
            self._signalling[new.name] = new
        if old is not None and new is None:
            self.device_maps.forget(old.name)
        if old is not None and new is not None and msgspec.structs.replace(old, version=new.version) == new:
            self.few.node_renewed(new)
            return
        was_looked_at = self.few.is_looked_at(name)
        self.few.node_changed(name, old, new, self.health.rows.get(name))
        self._know_stranger(name)
        is_ordinary = not was_looked_at and not self.few.is_looked_at(name)
        if old is None or new is None or old.ready is not new.ready:
            self._touch_gangs_on(name)
        if is_ordinary and old is not None and new is not None:
            self._notify_soon()
        else:
            self._notify()

    def _recipe_change(self, _key: str, _old: object, _new: object) -> None:
        before, self._in_force = self._in_force, settle(self._built_in, self.recipes.rows.values())
        if before.signatures != self._in_force.signatures:
            for name, node in self.nodes.rows.items():
                self.few.told_changed(name, node)
        self._notify()

    def _gang_change(self, _key: str, old: Gang | None, new: Gang | None) -> None:
        if old is not None and self._kept.is_of_a_repair(old.ref.namespace, old.labels):
            self._repair_jobs.pop(old.ref.name, None)
            old = None
        if new is not None and self._kept.is_of_a_repair(new.ref.namespace, new.labels):
            self._repair_jobs[new.ref.name] = new
            new = None
        if old is not None:
            self._gangs.pop(old.ref.uid, None)
            siblings = self._parts_of.get(old.part_of, {})
            siblings.pop(old.ref.uid, None)
            if not siblings:
                self._parts_of.pop(old.part_of, None)
        if new is not None and new.part_of:
            self._parts_of.setdefault(new.part_of, {})[new.ref.uid] = new
        elif new is not None:
            self._gangs[new.ref.uid] = new
        for gang in (old, new):
            if gang is not None and not self._is_to_run(gang.ref.uid):
                self._departed.pop(gang.ref.uid, None)
        for uid in {gang.part_of or gang.ref.uid for gang in (old, new) if gang is not None}:
            self._touch_gang(uid)
        if old is None or new is None or (old.labels, old.annotations) != (new.labels, new.annotations):
            for uid in {gang.ref.uid for gang in (old, new) if gang is not None}:
                self._tell_agents_of(uid)
        self._notify()

    def _recovery_change(self, key: str, old: Recovery | None, new: Recovery | None) -> None:
        if old is not None:
            for uid in {old.spec.gang.uid, old.gang_uid}:
                siblings = self._recoveries_of.get(uid, {})
                siblings.pop(key, None)
                if not siblings:
                    self._recoveries_of.pop(uid, None)
        if new is not None:
            for uid in (new.spec.gang.uid, new.gang_uid):
                self._recoveries_of.setdefault(uid, {})[key] = new
        for uid in {uid for r in (old, new) if r is not None for uid in self._kin(r)}:
            self._touch_gang(uid)
        self._notify()

    def _kin(self, recovery: Recovery) -> set[str]:
        """Returns the uids of all gangs whose history may contain the recovery. A job that was created again
        has the history of the job before it."""
        found, todo = set(), [recovery.spec.gang.uid, recovery.gang_uid]
        while todo:
            uid = todo.pop()
            if uid not in found:
                found.add(uid)
                of_uid = self._recoveries_of.get(uid, {}).values()
                todo += [other for r in of_uid for other in (r.spec.gang.uid, r.gang_uid)]
        return found

    # --- what a change may concern (triage/ordinary.py) -----------------------------------------------------

    def _know_stranger(self, node: str) -> None:
        """Records whether pods of gangs name this node although it is not in the cache."""
        if node in self._pods.gangs_on and node not in self.nodes.rows:
            self.few.strangers.add(node)
        else:
            self.few.strangers.discard(node)

    def _touch_gang(self, uid: str) -> None:
        self.few.gang_changed(uid, self._gangs.get(uid))

    def _touch_gangs_on(self, node: str) -> None:
        for uid in self._pods.gangs_on.get(node, ()):
            self._touch_gang(uid)

    def _tell_agents_of(self, gang_uid: str) -> None:
        for name in {pod.node for pod in self._pods.pods_of.get(gang_uid, {}).values()}:
            self.few.told_changed(name, self.nodes.rows.get(name))

    def _wake(self, gangs: Collection[str], *, is_urgent: bool) -> None:
        """Wakes the loops after a change that concerns these gangs, by uid."""
        if is_urgent:
            self._notify()
            return
        waiting = [uid for uid in gangs if self._is_waited_for(uid)]
        for uid in waiting:
            self._notify_gang(uid)
        if not waiting:
            self._notify_soon()

    def _is_waited_for(self, gang_uid: str) -> bool:
        """Whether a recovery waits for each change of the gang's pods. For a large gang it does not:
        thousands of pods go and come, and only the last pods that go matter at once."""
        is_recovering = any(r.active for r in self._recoveries_of.get(gang_uid, {}).values())
        return is_recovering and len(self._pods.pods_of.get(gang_uid, {})) <= LARGE

    def _pod_change(
        self, key: str, old: Pod | Bystander | AgentPod | None, new: Pod | Bystander | AgentPod | None
    ) -> None:
        agents = [pod if isinstance(pod, AgentPod) else None for pod in (old, new)]
        for node in self._agents.change(*agents):
            self.few.sight_changed(node, self.nodes.rows.get(node))
            if node not in self._pods.gangs_on:
                continue
            self._touch_gangs_on(node)
            self._notify()  # whether a gang's failure is its own may depend on it
        old, new = (None if isinstance(pod, AgentPod) else pod for pod in (old, new))
        is_news = _is_news(old, new) and (self._is_looked_at(old) or self._is_looked_at(new))
        is_of_beside = isinstance(old, Bystander) or isinstance(new, Bystander)
        if new is not None and new.node and (old is None or old.node != new.node):
            self._may_exist(new.node)
        self._pods.change(key, old, new)
        for node in {pod.node for pod in (old, new) if pod is not None}:
            self._know_stranger(node)
        old, new = (None if isinstance(pod, Bystander) else pod for pod in (old, new))
        is_gone = old is not None and (new is None or new.uid != old.uid)
        if old is not None and is_gone and self._is_to_run(old.owner_uid) and self._is_at_home(old):
            self._remember(old)
        if is_news and (old is not None or new is not None):
            self._pod_news(old, new)
        if is_news and is_of_beside:
            self._notify()

    def _pod_news(self, old: Pod | None, new: Pod | None) -> None:
        there = [pod for pod in (old, new) if pod is not None]
        for pod in there:
            self._touch_gang(pod.owner_uid)
            self.few.told_changed(pod.node, self.nodes.rows.get(pod.node))
        self._wake({pod.owner_uid for pod in there}, is_urgent=self._is_urgent(old, new))

    def _is_urgent(self, old: Pod | None, new: Pod | None) -> bool:
        """Whether a rank is lost, or the node is out of the ordinary. Thousands of other pods may come, start
        and end at once."""
        for pod in (old, new):
            if pod is not None and (is_scan(pod) or pod.node in self.few.strangers):
                return True
            if pod is not None and self.few.is_looked_at(pod.node):
                return True
        if old is not None and (new is None or new.uid != old.uid) and self._is_to_run(old.owner_uid):
            return True
        return new is not None and self._is_to_run(new.owner_uid) and _shows_an_end(new)

    def _is_looked_at(self, pod: Pod | Bystander | None) -> bool:
        """Whether a decision reads the pod. Pods beside the gangs come and go all the time, and only a repair
        of their node reads them. The quarantine of that node is a change by itself."""
        if not isinstance(pod, Bystander):
            return pod is not None
        node = self.nodes.rows.get(pod.node)
        return node is not None and node.quarantine is not None

    def _is_to_run(self, gang_uid: str) -> bool:
        gang = self._gangs.get(gang_uid)
        return gang is not None and not (gang.suspended or gang.deleting or gang.terminal)

    def _is_at_home(self, pod: Pod) -> bool:
        """Whether the pod is in its gang's namespace. Anybody who knows a gang's uid can name it as the owner
        of pods in another namespace, and the number of remembered pods is limited."""
        gang = self._gangs.get(pod.owner_uid)
        return gang is not None and gang.ref.namespace == pod.namespace

    def _remember(self, pod: Pod) -> None:
        """Remembers a rank that vanished. It may vanish before it is clear that its job has not ended, and
        its peers do not show it.

        A restart of the controller loses this memory. The ranks that wait for their peer then show the loss
        by a hang.
        """
        if pod.deleting_since is None and not pod.ended:
            pod = msgspec.structs.replace(pod, deleting_since=self._now(), is_missed=True)
        departed = self._departed.setdefault(pod.owner_uid, {})
        departed[pod.uid] = pod
        if len(departed) > DEPARTED_MAX:
            del departed[next(iter(departed))]


def _is_news(old: Pod | Bystander | None, new: Pod | Bystander | None) -> bool:
    """Whether a decision reads something new in the pod. Kubelets and others write fields that no decision
    reads, such as the pod's address: then only the version differs. The cache keeps the newest version
    nevertheless, for the next write to the pod."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        old = msgspec.structs.replace(old, version=new.version)
    return old != new


def _tells_of_pods(health: NodeHealth | None) -> object:
    """Returns the parts of an agent's report that a gang's state depends on."""
    if health is None:
        return None
    status = health.status
    return status.pods, status.coverage, status.pods_left_out, status.whole_pods


def _shows_an_end(pod: Pod) -> bool:
    """Whether the pod shows that its rank may be lost: the pod failed, is being deleted, has an unhealthy
    device, or one of its containers failed."""
    is_failed = pod.phase is PodPhase.FAILED or pod.deleting_since is not None
    return is_failed or bool(pod.unhealthy) or any(c.exit_code not in (None, 0) for c in pod.containers)
