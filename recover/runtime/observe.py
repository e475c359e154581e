"""Turns API objects into a World. Reflectors fill the caches (cache.py) with what is kept of each object
(kept.py), and each change of a cache updates the indexes that decisions use for lookups (changes.py).

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

from detectors.wire.resource import Resource
from recover.api import Incident, Recovery
from recover.k8s.kinds import (
    CONFIGMAPS,
    INCIDENTS,
    JOBS,
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PODS,
    RECIPES,
    RECOVERIES,
)
from recover.kube.cluster import Cluster
from recover.kube.reflector import Reflector
from recover.model import AgentPod, Bystander, Gang, Pod, Refusal, World, decode
from recover.model.actions import ConfirmGone
from recover.model.modes import Modes
from recover.model.pause import PAUSE, Pause, read_pause, unread_pause
from recover.policy.settings import Settings
from recover.recipes.objects import seen
from recover.recovery.scan_pod import scan_label
from recover.runtime.bounds import CacheShare
from recover.runtime.cache import Cache
from recover.runtime.changes import Changes, Wake
from recover.runtime.device_maps import DeviceMaps
from recover.runtime.kept import Kept
from recover.runtime.refusals import Refusals, Write, is_our_own_record
from recover.workloads import WORKLOADS

__all__ = ["Observer"]


class Observer:
    """All caches and reflectors.

    After every difference that a decision may read, the observer calls one of three callbacks. `changed` is
    for what may be a fault, and makes the loops decide at once; `of_gang` is for a change that only the
    recovery of one gang waits for, and gets the uid of the gang; `soon` is for all other changes, which can
    wait for half a second. The function `now` gives the time of a rank's disappearance, and of reports of
    other vendors' device plugins that contain no time.
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
        self.device_maps = DeviceMaps(cluster, settings.signals.reports, self._report_change, now)
        wake = Wake(changed, soon or changed, of_gang or (lambda _uid: changed()))
        self._changes = changes = Changes(settings, self.device_maps, wake, now)
        self.subject_index = changes.subject_index
        self.refusals = Refusals()
        kept = Kept(settings, changes.pods, changes.jobs.recoveries_of, self.device_maps.added)
        self.nodes = Cache(NODES, kept.node, changes.of_node, rows=changes.nodes)
        self.health = Cache(NODEHEALTHS, kept.health, changes.of_health, rows=changes.health)
        self.namespaces = Cache(NAMESPACES, decode.namespace, changes.of_namespace)
        self.incidents = Cache(INCIDENTS, msgspec.json.Decoder(Incident).decode, changes.of_any)
        self.recoveries = Cache(
            RECOVERIES,
            msgspec.json.Decoder(Recovery).decode,
            changes.of_recovery,
            room=CacheShare("recoveries", settings.room.recoveries_mib),
        )
        self.recipes = Cache(RECIPES, seen, changes.of_recipe, rows=changes.recipes)
        self.pods: Cache[Pod | Bystander | AgentPod] = Cache(
            PODS, kept.pod, changes.of_pod, room=CacheShare("pods", settings.room.pods_mib)
        )
        changes.unread_pods = self.pods.unreadable
        self.workloads = _workloads(settings, kept, changes)
        self._pause = Cache(CONFIGMAPS, read_pause, changes.of_any)
        of_nodes: tuple[Cache[Any], ...] = (self.nodes, self.health, self.namespaces)
        of_ours: tuple[Cache[Any], ...] = (self.incidents, self.recoveries, self.recipes)
        caches = (*of_nodes, *of_ours, self.pods, *self.workloads)
        self._caches: dict[Resource, Cache[Any]] = {cache.resource: cache for cache in caches}
        self.reflectors = self._reflectors(cluster)

    def _reflectors(self, cluster: Cluster) -> list[Reflector]:
        """Returns one reflector for each cache. A cluster need not serve the recipes and the frameworks."""
        optional = {RECIPES, *(cache.resource for cache in self.workloads)}
        fill = [
            Reflector(cluster, resource, cache, optional=resource in optional)
            for resource, cache in self._caches.items()
        ]
        only, namespace = f"metadata.name={PAUSE}", self._settings.namespace
        return [*fill, Reflector(cluster, CONFIGMAPS, self._pause, namespace=namespace, fields=only)]

    async def synced(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()
        await self.device_maps.synced()

    async def run(self) -> None:
        """Runs all reflectors. Jobs are listed after the pods, because only its pods show that a Job is a
        training if admission adds the devices to the pods (kept.py)."""
        of_kind = dict(zip(self._caches, self.reflectors, strict=False))
        async with asyncio.TaskGroup() as group:
            for reflector in (*self.reflectors, *self.device_maps.reflectors):
                after = of_kind[PODS] if reflector is of_kind[JOBS] else None
                group.create_task(_run(reflector, after))

    def absorb(self, resource: Resource, raw: bytes) -> None:
        """Takes the answer to one of our own writes. Kinds that the controller does not watch are ignored."""
        cache = self._caches.get(resource)
        if cache is not None:
            cache.absorb(raw)

    def refused(self, action: Write, refusal: Refusal) -> bool:
        """Keeps the refusal of a write that no object shows: a write to a kind of others, a request to a
        system outside the cluster, or a Recovery that cannot be opened or cannot get a further cause. Returns
        False for any other write. The first refusal of a write wakes all decisions; a later one replaces the
        first, and wakes none."""
        if is_our_own_record(action):
            return False
        if self.refusals.keep(action, refusal):
            self._changes.wake.at_once()
        return True

    def learned(self, resource: Resource, raw: bytes) -> bool:
        """Takes the answer to a live read. Returns True if the answer contains something new that decisions
        may read."""
        return self._caches[resource].learned(raw)

    def asks_for(self, asked: ConfirmGone) -> None:
        """Notes that an object is about to be read live. Call this before the read."""
        if asked.resource == NODES:
            self._changes.gone_nodes.ask(asked.name)

    def confirmed(self, asked: ConfirmGone) -> bool:
        """Notes that the API server has no such object. Returns False if the object has arrived meanwhile:
        the answer may be older than the object. An object with a requested uid cannot come back, so an
        object of that name in the cache does not matter then."""
        key = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
        is_here = key in self._caches[asked.resource].rows
        if asked.resource != NODES or is_here:
            return not is_here or bool(asked.uid)
        return self._changes.of_gone_node(asked.name)

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
        return self._changes.pods.has_scan(recovery.metadata.namespace, scan_label(recovery))

    def has_mark(self, recovery: Recovery) -> bool:
        """Whether the job carries the recovery's mark: then this recovery was the last to stop or start the
        job."""
        return self._changes.jobs.has_mark(recovery)

    def recoveries_of(self, gang_uid: str) -> Mapping[str, Recovery]:
        """Returns the gang's recoveries by `namespace/name`."""
        return self._changes.jobs.recoveries_of.get(gang_uid, {})

    def world(
        self, modes: Modes, being_quarantined: Collection[str] = (), being_started: Collection[str] = ()
    ) -> World:
        """Returns the World of this moment. `being_quarantined` contains the nodes whose quarantine is being
        written, `being_started` the gangs whose start is being written (see Executor)."""
        changes = self._changes
        jobs, pods, in_force = changes.jobs, changes.pods, changes.in_force
        return World(
            modes=modes,
            nodes=self.nodes.rows,
            health=self.health.rows,
            gangs=jobs.gangs,
            pods_of=pods.pods_of,
            scans=pods.scans,
            namespaces=self.namespaces.rows,
            incidents=self.incidents.rows,
            recoveries=self.recoveries.rows,
            recoveries_of=jobs.recoveries_of,
            indexed_active=jobs.active,
            gangs_on=pods.gangs_on,
            bystanders=pods.bystanders,
            repair_jobs=jobs.repair_jobs,
            departed=changes.departed.of_gang,
            signalling=changes.signalling,
            complaining=pods.complaining,
            not_started=pods.not_started,
            parts_of=jobs.parts_of,
            refused=self.refusals.by_place,
            being_quarantined=being_quarantined,
            being_started=being_started,
            gone_nodes=changes.gone_nodes.names,
            recipes=in_force.recipes,
            signatures=in_force.signatures,
            judged_recipes=in_force.judged,
            unread={cache.resource: cache.unreadable.keys() for cache in self._caches.values()},
            agents=changes.agents.by_node,
            agents_are_pods=self._settings.agents_are_pods,
            pool_label=self._settings.budgets.pool_label,
            indexed_subjects=self.subject_index.subjects,
            counted=self.subject_index.counted,
            pods_on=pods.pods_on,
            new_pods_memo=self.subject_index.new_pods_memo,
            kept_groups=changes.node_groups,
        )

    def _report_change(self, node: str) -> None:
        self.nodes.revise(node, self.device_maps.added)


async def _run(reflector: Reflector, after: Reflector | None) -> None:
    if after is not None:
        await after.synced.wait()
    await reflector.run()


def _workloads(settings: Settings, kept: Kept, changes: Changes) -> list[Cache[Gang]]:
    """Returns one cache for each framework. All of them share the room for jobs."""
    room = CacheShare("jobs", settings.room.jobs_mib)
    return [
        Cache(
            w.resource,
            partial(kept.gang, w),
            changes.of_job,
            room=room,
            outline=partial(kept.outlined, w.resource),
        )
        for w in WORKLOADS
    ]
