"""Counts the places that are kept for gangs which were started a moment ago, or are being restarted. Pure.

Pods are neither created nor bound at once. Without these reserved places, two gangs that wait for the same
places would start together, and each would take half of the places.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from recover.api import Phase, Recovery
from recover.k8s.quantities import parse_count
from recover.model import Gang, Pod, PodPhase, Template, World
from recover.workloads import workload_if_known

__all__ = [
    "CREATED_S",
    "RESERVED_S",
    "Request",
    "Reserved",
    "being_restarted",
    "places_of",
    "request_of",
    "reserved",
]

RESERVED_S = 60.0
"""Time after its start for which a gang keeps its places."""
CREATED_S = 5.0
"""Time within which a framework has created the first pods of a gang. Afterwards an elastic gang counts only
with these pods, or with its smallest number of ranks if that number is larger."""

Request = tuple[tuple[str, int], ...]


class Reserved(msgspec.Struct, frozen=True):
    """Places that one gang will take."""

    gang: Gang
    places: int


def reserved(
    world: World, gang: Gang, request: Request, known: Collection[str], now: datetime, kept_s: float
) -> dict[str, Reserved]:
    """Returns the places for ranks with that request, by the name of the gang that will take them, for all
    other gangs that were started within the last `kept_s`, or are being started. `known` has the resources
    that nodes report."""
    # While the Recovery of a gang is being opened, the gang's pods still use their places.
    starting = {uid for uid in world.being_started if uid in world.gangs and not _runs(world.gangs[uid])}
    found = places_of(world, gang, starting - {gang.ref.uid}, request, known) if kept_s else {}
    for recovery in world.active_recoveries:
        other = _gang_of(world, recovery) if _is_resuming(recovery) else None
        if other is None or other.ref.uid == gang.ref.uid:
            continue
        age = _started_ago(recovery, other, now)
        if age is not None and age < timedelta(seconds=kept_s):
            rivals = _rivals(other, gang, request, known)
            places = sum(
                _places(_waiting(world, other, one, templates, known, age), one, request)
                for one, templates in rivals.items()
            )
            found[str(other.ref)] = Reserved(other, places)
    return {name: one for name, one in sorted(found.items()) if one.places}


def _gang_of(world: World, recovery: Recovery) -> Gang | None:
    """Returns the gang of the recovery; None if the gang is gone. Between the deletion of its job and the
    creation of the same job, this is the gang that Rekindle will create."""
    gang, again = world.gangs.get(recovery.gang_uid), recovery.status.recreation
    if gang is not None and gang.ref.namespace != recovery.metadata.namespace:
        return None
    workload = workload_if_known(recovery.spec.gang)
    if again is None or not again.definition or workload is None or (gang is not None and not gang.deleting):
        return gang
    try:
        return workload.parse(again.definition.encode())
    except msgspec.MsgspecError:  # no controller has written this
        return gang


def _runs(gang: Gang) -> bool:
    return not (gang.suspended or gang.deleting or gang.terminal is not None)


def being_restarted(world: World) -> set[str]:
    """Returns the uids of the gangs that a recovery stops, or has stopped, and has not started since. They
    will need a place for each of their ranks."""
    found = set()
    for recovery in world.active_recoveries:
        gang = world.gangs.get(recovery.gang_uid)
        if gang is None or gang.ref.namespace != recovery.metadata.namespace:
            continue
        if recovery.status.phase is Phase.VERIFYING:
            continue
        if not _has_started(recovery, gang):
            found.add(gang.ref.uid)
    return found


def places_of(
    world: World, gang: Gang, uids: Collection[str], request: Request, known: Collection[str]
) -> dict[str, Reserved]:
    """Returns the places for ranks with that request that all ranks of the gangs `uids` will take, by the
    name of the gang. `known` has the resources that nodes report."""
    found = {}
    for other in (world.gangs[uid] for uid in sorted(uids) if uid in world.gangs):
        rivals = _rivals(other, gang, request, known)
        places = sum(_places(_count(other, templates), one, request) for one, templates in rivals.items())
        found[str(other.ref)] = Reserved(other, places)
    return {name: one for name, one in found.items() if one.places}


def request_of(template: Template, known: Collection[str]) -> Request:
    """Returns the accelerators and other extended resources of one rank that nodes report. A quantity that is
    not a whole number is left out."""
    total: dict[str, int] = {}
    for container in template.containers:
        match container.get("resources"):
            case {**resources}:
                both = {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
                for name, quantity in both.items():
                    count = parse_count(str(quantity)) if "/" in name and name in known else None
                    total[name] = total.get(name, 0) + (count or 0)
    return tuple(sorted((name, n) for name, n in total.items() if n))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _rivals(
    other: Gang, gang: Gang, request: Request, known: Collection[str]
) -> dict[Request, list[Template]]:
    """Returns the other gang's templates whose ranks may take a place from the gang's ranks with that
    request: they request some of the same devices, and the node selectors do not exclude each other."""
    mine = [one for one in gang.templates.values() if request_of(one, known) == request]
    names = {name for name, _ in request}
    found: dict[Request, list[Template]] = {}
    for template in other.templates.values():
        asked = request_of(template, known)
        is_alike = not names.isdisjoint(name for name, _ in asked)
        if is_alike and not all(_are_apart(template, one) for one in mine):
            found.setdefault(asked, []).append(template)
    return found


def _are_apart(template: Template, other: Template) -> bool:
    """Whether no node fulfils the node selectors of both."""
    asked = other.node_selector
    return any(asked.get(name, value) != value for name, value in template.node_selector.items())


def _places(ranks: int, asked: Request, request: Request) -> int:
    """Returns how many places for the request the ranks take that have `asked` for some of the same
    devices."""
    each = dict(request)
    return max(-(-ranks * n // each[name]) for name, n in asked if name in each)


def _waiting(
    world: World,
    gang: Gang,
    request: Request,
    templates: Collection[Template],
    known: Collection[str],
    age: timedelta,
) -> int:
    """Returns the number of ranks that the scheduler will bind soon. A pod with a scheduling gate is not
    bound before somebody removes the gate, and that may never happen."""
    requests = [request_of(template, known) for template in gang.templates.values()]
    count = _count(gang, templates)
    others = [one for one in requests if one != request]
    pods = [
        pod
        for pod in world.pods(gang.ref.uid)
        if pod.accelerators
        and pod.phase is not PodPhase.FAILED
        and (_is_within(pod, request) or not any(_is_within(pod, one) for one in others))
    ]
    bound = sum(1 for pod in pods if pod.node)
    gated = sum(1 for pod in pods if pod.gated and not pod.node)
    if age >= timedelta(seconds=CREATED_S):
        count = min(count, max(count - gang.may_lack, len(pods)))
    return max(0, count - bound - gated)


def _count(gang: Gang, templates: Collection[Template]) -> int:
    """Returns the number of ranks of these templates. A job with one template need not say it there."""
    return sum(template.count for template in templates) or (gang.size if templates else 0)


def _is_within(pod: Pod, request: Request) -> bool:
    """Whether the template with that request may be the pod's: the pod shows only its accelerators."""
    return set(pod.requests) <= set(request)


def _started_ago(recovery: Recovery, gang: Gang, now: datetime) -> timedelta | None:
    return now - recovery.status.phases[-1].at if _has_started(recovery, gang) else None


def _is_resuming(recovery: Recovery) -> bool:
    phases = recovery.status.phases
    return recovery.active and bool(phases) and phases[-1].phase is Phase.RESUMING


def _has_started(recovery: Recovery, gang: Gang) -> bool:
    """Whether the gang was started in the present attempt. The job of an earlier attempt keeps its mark if
    its framework has permanently failed it, since such a job gets no stop."""
    mark = gang.mark
    now = (recovery.metadata.name, recovery.status.attempt, "resumed")
    return mark is not None and (mark.recovery, mark.attempt, mark.did) == now
