"""Deletes old Incidents and Recoveries by age, and the oldest ones beyond a maximum number; also deletes
scans without a Recovery. Pure.

Age counts from the end of an object. If age counted from its creation, an Incident that waited a month for a
spare part would be deleted in the moment in which it is closed.

Only objects that are over are deleted, and no Incident for which a node is still in quarantine, for example
because of a hold, or whose repair still counts for the next repair of the node. While a job exists, some of
its Recoveries stay: those that give the next one its number, have the running totals, tell pods that ended in
earlier attempts from new pods, and say what recipes have changed. Long history is Prometheus' task.
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
from recover.workloads import workload_if_known

__all__ = ["expire", "is_near_the_cap"]

T = TypeVar("T")

AT_ONCE_MAX = 100
"""Largest number of deletions of one kind in one reconcile, so that a large backlog never delays other
writes."""

CONFIRMED_MAX = 20
"""Largest number of these deletions that need a live read. The reads of a namespace wait for each other, and
a gang of the same namespace may need a read."""

REST_AGAIN_S = 2.0
"""Pause until the next reconcile while more is to be deleted: of each kind 50 deletions a second (3,000 a
minute), which no API server notices."""

NEAR_AGAIN_S = 30.0
"""Pause until the next reconcile while there are more than half as many objects as the maximum: a storm of
findings creates thousands a minute."""


def expire(world: World, limits: Retention, now: datetime, *, repairs_window_s: float = 0.0) -> Plan:
    """Returns what to delete now, and when to reconcile again: soon while more is to be deleted or the
    maximum is near, otherwise after `interval_s`, since age comes without any change. The Incidents of
    repairs that returned their node to service within `repairs_window_s` stay: their number limits the next
    repairs."""
    standing = {
        node.quarantine.incident for node in world.subjects.nodes.values() if node.quarantine is not None
    }
    closed = [
        (incident.status.closed_at, incident.metadata, _whose(incident))
        for name, incident in world.incidents.items()
        if incident.status.phase is IncidentPhase.CLOSED
        and name not in standing
        and not _counts(incident, now - timedelta(seconds=repairs_window_s))
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


def _counts(incident: Incident, since: datetime) -> bool:
    """Whether the Incident is of a repair that returned its node to service after `since`."""
    repair = incident.status.repair
    at = repair.returned_at if repair is not None else None
    return at is not None and at > since


def _some(things: list[T], count: int, now: datetime) -> list[T]:
    """Returns at most `count` things, and different ones at another time: objects that cannot be deleted must
    not hold up the rest."""
    if len(things) <= count:
        return things
    start = int(now.timestamp() / REST_AGAIN_S) * count % len(things)
    return [*things[start:], *things[:start]][:count]


def is_near_the_cap(incidents: int, recoveries: int, limits: Retention) -> bool:
    """Whether there are so many objects that the search for old ones must come early."""
    return max(incidents, recoveries) > limits.objects_max / 2


def _job_gone(recovery: Recovery | None) -> Iterator[ConfirmGone]:
    """Yields the live read before the last Recovery of a job is deleted, if the job is not in the cache: the
    job may exist and be unreadable, or its watch may be late."""
    workload = workload_if_known(recovery.spec.gang) if recovery is not None else None
    if recovery is not None and workload is not None:
        yield ConfirmGone(
            what="confirm-job-gone",
            resource=workload.resource,
            name=recovery.spec.gang.name,
            namespace=recovery.metadata.namespace,
            uid=recovery.gang_uid,
        )


def _whose(incident: Incident) -> str:
    """Returns the namespace of the Incident's job, or its node: the repeated faults of one node must not push
    out the Incidents of others. No namespace has a slash in its name, so a node's name with its slash is
    distinct."""
    gang = incident.spec.gang
    return gang.namespace if gang is not None else f"node/{incident.spec.node}"


def _orphans(world: World, limits: Retention, now: datetime) -> Iterator[Delete]:
    """Yields the deletions of scans whose Recovery was deleted before it ended: a gate would keep them
    permanently."""
    known = {(r.metadata.namespace, scan_label(r)) for r in world.recoveries.values()}
    horizon = now - timedelta(seconds=limits.interval_s)
    for scan in world.scans.values():
        is_old = scan.created is not None and scan.created < horizon and scan.deleting_since is None
        if is_old and (scan.namespace, scan.labels[SCAN_OF]) not in known:
            yield remove(scan)


def _needed(world: World, gang_uid: str) -> Iterator[Recovery]:
    """Yields the Recoveries that must stay: the last one and, if it ended early, the last ones that know the
    earlier pods and the totals. For each recipe, the Recovery with its last use stays, and so does each
    Recovery that applied the recipe: its change applies at every later start."""
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
    """Returns how many objects of each owner may stay, so that all together are within the maximum."""
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
    """Yields deletions of the objects that are over. `over` has for each of them the time of its end, its
    metadata and its owner; without a known end the time of its creation counts. `totals` counts all objects
    by owner. Beyond the maximum, the owners with the most objects lose theirs first: a job that crashes again
    and again uses up only the history of its own namespace."""
    dated = [(ended or meta.creation_timestamp or now, meta, whose) for ended, meta, whose in over]
    share = _fair_share(totals, limits.objects_max)
    left = totals.copy()
    horizon = now - timedelta(days=limits.days)
    for ended, meta, whose in sorted(dated, key=lambda one: (one[0], one[1].name)):
        is_too_many = left[whose] > share
        left[whose] -= is_too_many
        is_going = meta.deletion_timestamp is not None  # a finalizer may delay it, which must delay no other
        if (is_too_many or ended < horizon) and not is_going:
            yield Delete(
                what=f"expire-{resource.kind.lower()}",
                resource=resource,
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
            )
