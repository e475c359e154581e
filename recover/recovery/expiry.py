"""Old Incidents and Recoveries go: by age, and the oldest beyond a cap; so do scans without Recovery. Pure.

Age counts from the end of an object. By its creation, an Incident that waited a month for a spare part would
go in the moment in which it is closed.

Only what is over goes, and no Incident that a node is still out for, as one on hold may be. While a job
exists, those of its Recoveries stay that number the next one, carry the running totals, tell pods that ended
in earlier attempts from new ones, and say what recipes have changed. Long history is Prometheus' task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from detectors.wire.contract import ObjectMeta
from detectors.wire.resource import Resource
from recover.api import Incident, IncidentPhase, RecipeOutcome, Recovery
from recover.api.marks import SCAN_OF
from recover.k8s.kinds import INCIDENTS, RECOVERIES
from recover.model import World
from recover.model.actions import Action, ConfirmGone, Delete, Plan
from recover.policy.settings import Retention
from recover.recovery.scan_pod import remove, scan_label
from recover.workloads import resource_if_known

__all__ = ["expire", "is_near_the_cap"]

T = TypeVar("T")

AT_ONCE_MAX = 100
"""Deletions of one kind in one look, so that a large backlog never delays other writes."""

CONFIRMED_MAX = 20
"""Of these the deletions that need a live read. The reads of a namespace wait for each other, and a gang of
the same namespace may need one."""

REST_AGAIN_S = 2.0
"""Pause until the next look while more is to be deleted: 50 deletions a second (3,000 a minute), which no
API server notices."""

NEAR_AGAIN_S = 30.0
"""Pause until the next look while there are more than half as many as the cap: a storm of findings makes
thousands a minute."""


def expire(world: World, limits: Retention, now: datetime) -> Plan:
    """Returns what to delete now, and when to look again: soon while more is to be deleted or the cap is
    near, otherwise after `interval_s`, since age comes without any change."""
    standing = {
        node.quarantine.incident for node in world.subjects.nodes.values() if node.quarantine is not None
    }
    closed = [
        (incident.status.closed_at, incident.metadata, _whose(incident))
        for name, incident in world.incidents.items()
        if incident.status.phase is IncidentPhase.CLOSED and name not in standing
    ]
    needed, needed_by_absent = set[str](), dict[str, Recovery]()
    for uid in world.recoveries_of:
        for recovery in _needed(world, uid):
            if uid in world.gangs:
                needed.add(recovery.metadata.uid)
            else:
                needed_by_absent[recovery.metadata.uid] = recovery
    over = [
        (r.status.phases[-1].at if r.status.phases else None, r.metadata, r.metadata.namespace)
        for r in world.recoveries.values()
        if not r.active and r.metadata.uid not in needed
    ]
    to_go = [
        list(_orphans(world, limits, now)),
        list(_expired(INCIDENTS, closed, Counter(map(_whose, world.incidents.values())), limits, now)),
        list(
            _expired(
                RECOVERIES,
                over,
                Counter(r.metadata.namespace for r in world.recoveries.values()),
                limits,
                now,
            )
        ),
    ]
    chains: list[tuple[Action, ...]] = [
        (*_job_gone(needed_by_absent.get(d.uid)), d)
        for deletions in to_go
        for d in _some(deletions, AT_ONCE_MAX, now)
    ]
    read = [chain for chain in chains if len(chain) > 1]
    is_more = len(read) > CONFIRMED_MAX or any(len(deletions) > AT_ONCE_MAX for deletions in to_go)
    is_near = is_near_the_cap(len(world.incidents), len(world.recoveries), limits)
    again_s = min(NEAR_AGAIN_S, limits.interval_s) if is_near else limits.interval_s
    return Plan(
        chains=(*(chain for chain in chains if len(chain) == 1), *_some(read, CONFIRMED_MAX, now)),
        requeue_after_s=REST_AGAIN_S if is_more else again_s,
    )


def _some(things: list[T], count: int, now: datetime) -> list[T]:
    """At most so many, and others at another time: those that cannot be deleted must not hold up the rest."""
    if len(things) <= count:
        return things
    start = int(now.timestamp() / REST_AGAIN_S) * count % len(things)
    return [*things[start:], *things[:start]][:count]


def is_near_the_cap(incidents: int, recoveries: int, limits: Retention) -> bool:
    """Whether there are so many that the search for old ones cannot wait for its time."""
    return max(incidents, recoveries) > limits.objects_max / 2


def _job_gone(recovery: Recovery | None) -> Iterator[ConfirmGone]:
    """The live read before the last Recovery of a job is deleted, if the job is not in the cache: the job may
    exist and be unreadable, or its watch may be late."""
    resource = resource_if_known(recovery.spec.gang) if recovery is not None else None
    if recovery is not None and resource is not None:
        yield ConfirmGone(
            what="confirm-job-gone",
            resource=resource,
            name=recovery.spec.gang.name,
            namespace=recovery.metadata.namespace,
            uid=recovery.gang_uid,
        )


def _whose(incident: Incident) -> str:
    """The namespace of the job that it is about, or the node: one node's flapping must not push out what is
    told of the others. No namespace has a node's slash."""
    gang = incident.spec.gang
    return gang.namespace if gang is not None else f"node/{incident.spec.node}"


def _orphans(world: World, limits: Retention, now: datetime) -> Iterator[Delete]:
    """Scans whose Recovery was deleted in mid-recovery: a gate would hold them for ever."""
    known = {(r.metadata.namespace, scan_label(r)) for r in world.recoveries.values()}
    horizon = now - timedelta(seconds=limits.interval_s)
    for scan in world.scans.values():
        is_old = scan.created is not None and scan.created < horizon and scan.deleting_since is None
        if is_old and (scan.namespace, scan.labels[SCAN_OF]) not in known:
            yield remove(scan)


def _needed(world: World, gang_uid: str) -> Iterator[Recovery]:
    """The last one, and where that ended early, the last ones that know the pods of before and the totals. Of
    each recipe the last word and each try: its change stands at every later start."""
    newest_first = world.history(gang_uid)[::-1]
    yield from newest_first[:1]
    yield from [r for r in newest_first if r.status.leftovers][:1]
    yield from [r for r in newest_first if r.status.totals is not None][:1]
    told: set[str] = set()
    for recovery in newest_first:
        uses = recovery.status.recipes
        if any(use.outcome is RecipeOutcome.APPLIED or use.name not in told for use in uses):
            yield recovery
        told |= {use.name for use in uses}


def _fair_share(totals: Counter[str], objects_max: int) -> int:
    """So many may stay of each, for all together to be within the cap."""
    room, waiting = objects_max, sorted(totals.values())
    while waiting and waiting[0] * len(waiting) <= room:
        room -= waiting.pop(0)
    return room // len(waiting) if waiting else objects_max


def _expired(
    resource: Resource,
    over: list[tuple[datetime | None, ObjectMeta, str]],
    totals: Counter[str],
    limits: Retention,
    now: datetime,
) -> Iterator[Delete]:
    """`over` with the time of their end, or else of their making, and whose they are; `totals` counts all,
    by whose they are. Beyond the cap those go first of whom there are most: a job that crashes on and on
    takes the history of its own namespace only."""
    dated = [(ended or meta.creation_timestamp or now, meta, whose) for ended, meta, whose in over]
    share = _fair_share(totals, limits.objects_max)
    left = totals.copy()
    horizon = now - timedelta(days=limits.days)
    for ended, meta, whose in sorted(dated, key=lambda one: (one[0], one[1].name)):
        is_too_many = left[whose] > share
        left[whose] -= is_too_many
        is_going = meta.deletion_timestamp is not None  # a finalizer may hold it, which must hold up no other
        if (is_too_many or ended < horizon) and not is_going:
            yield Delete(
                what=f"expire-{resource.kind.lower()}",
                resource=resource,
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
            )
