"""Derives the controller's gauges from the World before each scrape. Every controller, a new leader and one
that stands by included, therefore reports the same values. Only `rekindle_paused` is 0 in a controller that
stands by, because that controller does not follow the pause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise

from prometheus_client import Gauge

from detectors.wire.training import Edge
from recover.api import ACTIVE_PHASES, Act, IncidentPhase, Outcome, Phase, Recovery, RecoveryStatus
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase
from recover.diagnose.coverage import unread_sources
from recover.diagnose.what_counts import suspected_by_agents
from recover.model import Gang, PodPhase, World
from recover.runtime.telemetry import Metrics
from recover.triage.held_back import refusals

__all__ = ["derive"]

_NO_WAIT = ("", Reason.CHECKPOINT_UNVERIFIED)
"""Reasons of a recovery that goes on and does not wait."""


def derive(metrics: Metrics, world: World, now: datetime, *, suspicion_s: float) -> None:
    """Sets all gauges that follow from the World. The values are counted first and then written: counting in
    the gauges themselves took four times as long."""
    metrics.paused.set(world.modes.paused is not None)
    _nodes(metrics, world, now)
    _fill(metrics.nodes_suspected, Counter(suspected_by_agents(world, now, suspicion_s).values()))
    _incidents(metrics, world)
    _recoveries(metrics, world)
    _repairs(metrics, world)


def _fill(gauge: Gauge, values: Mapping[str, float]) -> None:
    """Sets the values of a gauge with one label. A label value without a number has no series."""
    gauge.clear()
    for name, value in values.items():
        gauge.labels(name).set(value)


def _nodes(metrics: Metrics, world: World, now: datetime) -> None:
    metrics.accelerated.set(world.accelerated())
    nodes, unseen = world.subjects.nodes.values(), world.subjects.unseen.values()
    metrics.quarantined.set(sum(1 for node in nodes if node.quarantine is not None))
    blind = (source for node in unseen if node.is_accelerated for source in unread_sources(world, node, now))
    _fill(metrics.nodes_blind, Counter(blind))
    _fill(metrics.nodes_for_people, Counter(_nodes_for_people(world)))


def _nodes_for_people(world: World) -> Iterator[str]:
    """Yields the reason for each node that only a person can return to service."""
    out = {node.quarantine.incident for node in world.subjects.nodes.values() if node.quarantine is not None}
    for name, incident in world.incidents.items():
        status = incident.status
        if status.phase is not IncidentPhase.OPEN:
            continue
        if status.repair is None and name in out:
            told = (record.reason for record in status.actions if record.action == Act.REPAIR_NODE)
            yield next(told, Reason.NOT_IN_REPAIR_MODE)
        elif status.repair is not None and status.repair.phase is RepairPhase.HANDED_OVER:
            yield status.repair.reason


def _incidents(metrics: Metrics, world: World) -> None:
    found = [i for i in world.incidents.values() if i.status.phase is IncidentPhase.OPEN]
    records = [record for incident in found for record in (*incident.status.actions, *refusals(incident))]
    _fill(metrics.incidents, Counter(incident.fault for incident in found))
    _fill(metrics.not_done, Counter(r.reason for r in records if r.outcome is not Outcome.DONE))


def _recoveries(metrics: Metrics, world: World) -> None:
    every = [recovery.status for recovery in world.recoveries.values()]
    active = [status for status in every if status.phase in ACTIVE_PHASES]
    _fill(metrics.recoveries, Counter(status.phase for status in every))
    _fill(metrics.recoveries_waiting, Counter(s.reason for s in active if s.reason not in _NO_WAIT))
    _fill(metrics.phase_seconds, _phase_seconds(s for s in every if s.phase not in ACTIVE_PHASES))
    metrics.lost_steps.set(sum(status.lost_steps or 0 for status in every))
    metrics.lost_gpu_seconds.set(sum(status.lost_gpu_s or 0.0 for status in every))
    given_up = (_given_up(world, gang) for gang in world.gangs.values())
    _fill(metrics.given_up, Counter(recovery.status.reason for recovery in given_up if recovery is not None))


def _phase_seconds(over: Iterable[RecoveryStatus]) -> Mapping[str, float]:
    took_s: dict[str, float] = defaultdict(float)
    for status in over:
        for entered, left in pairwise(status.phases):
            took_s[entered.phase] += (left.at - entered.at).total_seconds()
    return took_s


def _given_up(world: World, gang: Gang) -> Recovery | None:
    """Returns the gang's last recovery if it escalated to a person and the gang has not continued since then,
    otherwise None."""
    history = world.history(gang.ref.uid)
    if not history or history[-1].status.phase is not Phase.ESCALATED or gang.deleting:
        return None
    if gang.terminal is not None and gang.terminal.succeeded:
        return None
    entered = history[-1].status.phases
    return None if entered and _goes_on(world, gang, entered[-1].at) else history[-1]


def _goes_on(world: World, gang: Gang, since: datetime) -> bool:
    """Whether the gang has made steps since then, or all its ranks run in pods that were created since then.
    Pods count because the steps of some jobs cannot be read."""
    pods = [pod for pod in world.pods(gang.ref.uid) if pod.phase is PodPhase.RUNNING]
    told = [progress for pod in pods if (progress := world.progress(pod)) is not None]
    if any(p.edge in (Edge.STEPPING, Edge.RESUMED) and p.at > since for p in told):
        return True
    started = [pod for pod in pods if pod.created is not None and pod.created > since]
    return 0 < gang.size <= len(started)


def _repairs(metrics: Metrics, world: World) -> None:
    every = [i.status.repair for i in world.incidents.values() if i.status.repair is not None]
    took_s: dict[str, float] = defaultdict(float)
    for repair in every:
        if repair.began_at is not None and repair.ended_at is not None:
            took_s[repair.phase] += (repair.ended_at - repair.began_at).total_seconds()
    _fill(metrics.repairs, Counter(repair.phase for repair in every))
    _fill(metrics.repair_seconds, took_s)
