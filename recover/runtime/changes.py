"""Follows each change of a cache: updates the indexes, makes everything that the change may concern a subject
of the next reconcile (subject_index.py), and wakes the loops that may now decide differently. The caches of
observe.py call it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import NodeHealth
from recover.api import Recovery
from recover.model import AgentPod, Bystander, Gang, Node, Pod, PodPhase
from recover.model.agent_readiness import AgentPods
from recover.model.judged_recipes import SeenRecipe
from recover.model.node_groups import GroupedNodes
from recover.policy.settings import Settings
from recover.recipes.load import built_in
from recover.recipes.objects import settle
from recover.runtime.departed import Departed
from recover.runtime.device_maps import DeviceMaps
from recover.runtime.gang_index import GangIndex
from recover.runtime.gone_nodes import GoneNodes
from recover.runtime.pod_index import PodIndex, is_scan
from recover.runtime.subject_index import SubjectIndex

__all__ = ["Changes", "Wake"]

LARGE = 64
"""Number of pods above which a gang is large: single changes of its pods then matter little."""


class Wake(msgspec.Struct, frozen=True):
    """The ways to wake the loops. Each difference that a decision may read wakes them in one of these
    ways."""

    at_once: Callable[[], None]
    soon: Callable[[], None]
    """For a change that is not urgent: no decision about a fault or a recovery has to follow at once."""
    of_gang: Callable[[str], None]
    """For a change for which the recovery of one gang waits; the argument is the gang's uid."""


class Changes:
    """The indexes, and one method for the changes of each kind. A method takes the kept object before and
    after the change; None means that there is none."""

    def __init__(
        self, settings: Settings, device_maps: DeviceMaps, wake: Wake, now: Callable[[], datetime]
    ) -> None:
        self._agents_are_pods = settings.agents_are_pods
        self._device_maps = device_maps
        self.wake = wake
        self.nodes: dict[str, Node] = {}
        """Rows of the cache of the Nodes. Like each cache, this one changes its rows before it calls here."""
        self.health: dict[str, NodeHealth] = {}
        """Rows of the cache of the NodeHealths."""
        self.recipes: dict[str, SeenRecipe] = {}
        """Rows of the cache of the Recipes."""
        self.unread_pods: Mapping[str, str] = {}
        """Keys of the pods that exist and of which the cache keeps nothing, with the reasons."""
        labels = (settings.budgets.pool_label, settings.budgets.domain_label)
        self.subject_index = SubjectIndex(labels, settings.timing)
        self.jobs = GangIndex(settings.namespace)
        self.pods = PodIndex()
        self.agents = AgentPods()
        self.departed = Departed(now)
        self.gone_nodes = GoneNodes()
        self.signalling: dict[str, Node] = {}
        self.node_groups = GroupedNodes()
        self._built_in = built_in()
        self.in_force = settle(self._built_in, ())

    # --- kinds of which every change wakes the loops --------------------------------------------------------

    def of_any(self, _key: str, _old: object, _new: object) -> None:
        self.wake.at_once()

    def of_namespace(self, name: str, old: object, new: object) -> None:
        """Takes a change of a namespace. Its label or annotation may now give consent for all its jobs."""
        if old is not None and old == new:
            return
        for uid, gang in self.jobs.gangs.items():
            if gang.ref.namespace == name:
                self._touch_gang(uid)
                self._tell_agents_of(uid)
        self.wake.at_once()

    def of_recipe(self, _key: str, _old: object, _new: object) -> None:
        before, self.in_force = self.in_force, settle(self._built_in, self.recipes.values())
        if before.signatures != self.in_force.signatures:
            for name, node in self.nodes.items():
                self.subject_index.spec_may_change(name, node)
        self.wake.at_once()

    def of_job(self, _key: str, old: Gang | None, new: Gang | None) -> None:
        old, new = self.jobs.change(old, new)
        if old is not None and new is not None and msgspec.structs.replace(old, version=new.version) == new:
            self.subject_index.gang_renewed(new)
            return
        for gang in (old, new):
            if gang is not None and not self.jobs.is_to_run(gang.ref.uid):
                self.departed.forget(gang.ref.uid)
        for uid in {gang.part_of or gang.ref.uid for gang in (old, new) if gang is not None}:
            self._touch_gang(uid)
        if old is None or new is None or (old.labels, old.annotations) != (new.labels, new.annotations):
            for uid in {gang.ref.uid for gang in (old, new) if gang is not None}:
                self._tell_agents_of(uid)
        self.wake.at_once()

    def of_recovery(self, key: str, old: Recovery | None, new: Recovery | None) -> None:
        self.jobs.change_recovery(key, old, new)
        for uid in {uid for r in (old, new) if r is not None for uid in self.jobs.kin(r)}:
            self._touch_gang(uid)
            if old is None or new is None or old.spec.pace != new.spec.pace:
                self._tell_agents_of(uid)
        self.wake.at_once()

    # --- nodes and their reports ----------------------------------------------------------------------------

    def of_health(self, name: str, old: NodeHealth | None, new: NodeHealth | None) -> None:
        """Takes a change of a node's report. The agents of a large cluster write at any time about steps and
        about themselves. The loops reconcile at once only if the node is out of the ordinary, or if a
        recovery waits for the change."""
        was_subject = self.subject_index.is_subject(name)
        self.subject_index.report_changed(name, self.nodes.get(name), new)
        # If agents are not pods, each report may end the silence of an agent (triage/ordinary.py).
        if _parts_about_pods(old) != _parts_about_pods(new) or not self._agents_are_pods:
            self._touch_gangs_on(name)
        waits = new is not None and any(pod.awaits_save for pod in new.spec.pods)
        is_urgent = was_subject or self.subject_index.is_subject(name) or waits
        self._wake_for(self.pods.gangs_on.get(name, ()), is_urgent=is_urgent)

    def of_node(self, name: str, old: Node | None, new: Node | None) -> None:
        """Takes a change of a Node. Each kubelet reports every few minutes, so 10,000 kubelets write 30
        reports a second. A report that contains nothing new for a decision wakes no loop."""
        if new is not None:
            self.gone_nodes.may_exist(new.name)
        for node in (old, new):
            if node is not None:
                self.signalling.pop(node.name, None)
        if new is not None and new.signals:
            self.signalling[new.name] = new
        if old is not None and new is None:
            self._device_maps.forget(old.name)
        if old is not None and new is not None and msgspec.structs.replace(old, version=new.version) == new:
            self.subject_index.node_renewed(new)
            return
        self.node_groups.touch(name)
        was_subject = self.subject_index.is_subject(name)
        self.subject_index.node_changed(name, old, new, self.health.get(name))
        self._note_whether_uncached(name)
        is_ordinary = not was_subject and not self.subject_index.is_subject(name)
        if old is None or new is None or old.ready is not new.ready:
            self._touch_gangs_on(name)
        if is_ordinary and old is not None and new is not None:
            self.wake.soon()
        else:
            self.wake.at_once()

    def of_gone_node(self, name: str) -> bool:
        """Takes the answer to a live read that there is no such Node. Returns False if an object that names
        the node has arrived meanwhile: the answer may be older than the object."""
        if not self.gone_nodes.is_asked(name):
            return False
        if self.gone_nodes.add(name):
            self._touch_gangs_on(name)
            self.wake.at_once()
        return True

    # --- pods -----------------------------------------------------------------------------------------------

    def of_pod(
        self, key: str, old: Pod | Bystander | AgentPod | None, new: Pod | Bystander | AgentPod | None
    ) -> None:
        """Takes a change of a pod. A change, for example of its labels, may also turn a Pod into an AgentPod
        or a Bystander, or back."""
        self._of_agent(*(pod if isinstance(pod, AgentPod) else None for pod in (old, new)))
        before, after = (None if isinstance(pod, AgentPod) else pod for pod in (old, new))
        is_news = _is_news(before, after)
        for pod in (before, after):
            if is_news and pod is not None:
                self.node_groups.touch(pod.node)
        is_news = is_news and (self._is_read(before) or self._is_read(after))
        self._index_pod(key, before, after)
        ranks = (None if isinstance(pod, Bystander) else pod for pod in (before, after))
        self._of_rank(key, *ranks, is_news=is_news)
        if is_news and (isinstance(before, Bystander) or isinstance(after, Bystander)):
            self.wake.at_once()

    def _of_agent(self, old: AgentPod | None, new: AgentPod | None) -> None:
        for node in self.agents.change(old, new):
            self.subject_index.sight_changed(node, self.nodes.get(node))
            if node in self.pods.gangs_on:
                self._touch_gangs_on(node)
                self.wake.at_once()  # whether a gang's failure is its own may depend on it
            elif (row := self.nodes.get(node)) is not None and row.quarantine is not None:
                self.wake.at_once()  # a repaired node returns to service only with its agent
            else:
                self.wake.soon()  # the condition of the node says whether its agent reports

    def _index_pod(self, key: str, old: Pod | Bystander | None, new: Pod | Bystander | None) -> None:
        if new is not None and new.node and (old is None or old.node != new.node):
            self.gone_nodes.may_exist(new.node)
        self.pods.change(key, old, new)
        for node in {pod.node for pod in (old, new) if pod is not None}:
            self._note_whether_uncached(node)

    def _of_rank(self, key: str, old: Pod | None, new: Pod | None, *, is_news: bool) -> None:
        if old is not None and self._is_lost(key, old, new):
            self.departed.remember(old)
        if is_news and (old is not None or new is not None):
            self._pod_news(old, new)

    def _is_lost(self, key: str, old: Pod, new: Pod | None) -> bool:
        """Whether the pod is gone while its gang should run. A pod of which the cache no longer keeps
        anything, for example because the pod is too large, is not gone."""
        is_gone = (new is None or new.uid != old.uid) and key not in self.unread_pods
        return is_gone and self.jobs.is_to_run(old.owner_uid) and self.jobs.is_at_home(old)

    def _pod_news(self, old: Pod | None, new: Pod | None) -> None:
        there = [pod for pod in (old, new) if pod is not None]
        for pod in there:
            self._touch_gang(pod.owner_uid)
            self.subject_index.spec_may_change(pod.node, self.nodes.get(pod.node))
        self._wake_for({pod.owner_uid for pod in there}, is_urgent=self._is_urgent(old, new))

    def _is_urgent(self, old: Pod | None, new: Pod | None) -> bool:
        """Whether the pod is a scan, its rank is lost, or its node is out of the ordinary or not in the
        cache. Other changes of pods can wait: thousands of pods may come, start and end at once."""
        for pod in (old, new):
            if pod is not None and (is_scan(pod) or pod.node in self.subject_index.uncached_nodes):
                return True
            if pod is not None and self.subject_index.is_subject(pod.node):
                return True
        if old is not None and (new is None or new.uid != old.uid) and self.jobs.is_to_run(old.owner_uid):
            return True
        return new is not None and self.jobs.is_to_run(new.owner_uid) and _shows_an_end(new)

    def _is_read(self, pod: Pod | Bystander | None) -> bool:
        """Whether a decision reads the pod. Pods beside the gangs come and go all the time, and only a repair
        of their node reads them. When that node is quarantined, the change of the Node wakes the loops."""
        if not isinstance(pod, Bystander):
            return pod is not None
        node = self.nodes.get(pod.node)
        return node is not None and node.quarantine is not None

    # --- what a change may concern (triage/ordinary.py), and whom it wakes ----------------------------------

    def _note_whether_uncached(self, node: str) -> None:
        """Records whether pods of gangs name this node although it is not in the cache."""
        if node in self.pods.gangs_on and node not in self.nodes:
            self.subject_index.uncached_nodes.add(node)
        else:
            self.subject_index.uncached_nodes.discard(node)

    def _touch_gang(self, uid: str) -> None:
        self.subject_index.gang_changed(uid, self.jobs.gangs.get(uid))

    def _touch_gangs_on(self, node: str) -> None:
        for uid in self.pods.gangs_on.get(node, ()):
            self._touch_gang(uid)

    def _tell_agents_of(self, gang_uid: str) -> None:
        for name in {pod.node for pod in self.pods.pods_of.get(gang_uid, {}).values()}:
            self.subject_index.spec_may_change(name, self.nodes.get(name))

    def _wake_for(self, gangs: Collection[str], *, is_urgent: bool) -> None:
        """Wakes the loops after a change that concerns these gangs, by uid."""
        if is_urgent:
            self.wake.at_once()
            return
        waiting = [uid for uid in gangs if self._is_waited_for(uid)]
        for uid in waiting:
            self.wake.of_gang(uid)
        if not waiting:
            self.wake.soon()

    def _is_waited_for(self, gang_uid: str) -> bool:
        """Whether a recovery waits for each change of the gang's pods. The recovery of a gang with many pods
        does not: thousands of pods go and come, and only the last pods that go matter at once."""
        return self.jobs.is_recovering(gang_uid) and len(self.pods.pods_of.get(gang_uid, {})) <= LARGE


def _is_news(old: Pod | Bystander | None, new: Pod | Bystander | None) -> bool:
    """Whether a decision reads something new in the pod. Kubelets and others write fields that no decision
    reads, such as the pod's address: then only the version differs. The cache keeps the newest version
    nevertheless, for the next write to the pod."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        old = msgspec.structs.replace(old, version=new.version)
    return old != new


def _parts_about_pods(health: NodeHealth | None) -> object:
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
