"""Turns the World into diagnoses: what broke, which node or program is the culprit, and which gangs are
affected. Pure; triage decides what to do about each fault.

Hardware evidence on a node with a rank outweighs the errors of the ranks themselves: a gang whose failure a
node's fault explains gets no separate diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import Fault
from recover.api import STOPPED_PHASES
from recover.diagnose.caught import about_gang, each
from recover.diagnose.diagnosis import AffectedGang, Diagnosis
from recover.diagnose.gang_faults import GangState, gang_faults, gang_state
from recover.diagnose.hindsight import corrections, doubted, proved_before, shown_around
from recover.diagnose.node_faults import node_faults, not_ready
from recover.diagnose.ranks import is_down, resumed_at, started_at
from recover.model import Gang, Subjects, World
from recover.model.actions import Failure
from recover.policy.settings import Settings, Timing

__all__ = ["Judged", "diagnose", "runs"]


class Judged(msgspec.Struct, frozen=True):
    """The results about the subjects of one reconcile."""

    found: list[Diagnosis]
    """Every fault that may need an action now. The faults that brought a gang down come before the others; of
    each of these two kinds the oldest comes first."""
    states: Mapping[str, GangState]
    """State of every gang that runs or has failed, by the gang's uid. A gang has no state if it is suspended
    or being deleted, if a recovery stops it, or if it has succeeded or reached its owner's deadline."""
    proved: Mapping[str, Diagnosis]
    """For each Incident of a gang whose cause has turned out to be the fault of a node: that fault, by the
    name of the Incident."""
    failures: tuple[Failure, ...]


def diagnose(world: World, subjects: Subjects, settings: Settings, now: datetime) -> Judged:
    states, unread = _gang_states(world, subjects.gangs, settings.timing, now)
    seen_dead = frozenset(uid for uid, state in states.items() if state.dead and not state.is_unseen)
    dead = seen_dead | _down(world, subjects.gangs)
    nodes, unjudged = node_faults(world, subjects.health, dead, settings.timing, now)
    nodes += not_ready(world, subjects.nodes.values(), dead, now)
    nodes = [_with_failures(world, fault, states, settings) for fault in nodes]
    explained = frozenset(h.gang.ref.uid for d in nodes for h in d.affected if h.explained)
    gangs, unexplained = gang_faults(world, states, explained, settings.timing, now)
    found = doubted(world, nodes, settings.timing) + gangs
    found.sort(key=lambda d: (not _brought_down(d), d.detected_at, d.name))
    return Judged(
        found=found,
        states=states,
        proved=corrections(world, found, settings.timing),
        failures=(*unread, *unjudged, *unexplained),
    )


def _gang_states(
    world: World, gangs: Mapping[str, Gang], timing: Timing, now: datetime
) -> tuple[dict[str, GangState], list[Failure]]:
    running = [gang for gang in gangs.values() if runs(world, gang)]
    states, failures = each(running, about_gang, lambda gang: gang_state(world, gang, timing, now))
    return {state.gang.ref.uid: state for state in states}, failures


def runs(world: World, gang: Gang) -> bool:
    """Whether the gang has a state: its pods are meant to run, or the gang has failed before its owner's
    deadline."""
    recovery = world.active_recovery(gang.ref.uid)
    is_stopped = recovery is not None and recovery.status.phase in STOPPED_PHASES
    is_over = (gang.terminal is not None and gang.terminal.succeeded) or world.has_reached_deadline(gang)
    return not (is_stopped or gang.suspended or gang.deleting or is_over)


def _brought_down(fault: Diagnosis) -> bool:
    return fault.gang is not None or any(affected.explained for affected in fault.affected)


def _down(world: World, gangs: Mapping[str, Gang]) -> frozenset[str]:
    """Returns the gangs that Rekindle has stopped, or is about to stop. If their nodes show a fault at
    present, it belongs to the cause of the stop."""
    found = ((gang, world.active_recovery(uid)) for uid, gang in gangs.items())
    return frozenset(gang.ref.uid for gang, r in found if r is not None and is_down(r, gang))


def _with_failures(
    world: World, fault: Diagnosis, states: Mapping[str, GangState], settings: Settings
) -> Diagnosis:
    """Returns the fault with the gangs whose failure it explains, and the time of each failure. A gang that
    has failed for another reason is not affected by a suspicion."""
    kept = []
    for affected in fault.affected:
        state = states.get(affected.gang.ref.uid)
        is_dead = state is not None and state.dead and not _is_spent(world, fault, affected)
        if state is not None and is_dead and _explains(fault, state, settings):
            affected = msgspec.structs.replace(
                affected, explained=True, failed_at=state.failed_at, born_at=state.born_at
            )
        is_doubtful = affected.is_suspicion and affected.dead and not affected.explained
        if not is_doubtful or _preceded_stop(world, fault, affected, settings):
            kept.append(affected)
    return msgspec.structs.replace(fault, affected=tuple(kept))


def _preceded_stop(world: World, fault: Diagnosis, affected: AffectedGang, settings: Settings) -> bool:
    """Whether the gang is stopped, or about to be stopped, for a failure that came shortly before or after
    the suspicion."""
    recovery = world.active_recovery(affected.gang.ref.uid)
    if recovery is None or not is_down(recovery, affected.gang):
        return False
    causes = recovery.status.causes or recovery.spec.causes
    at = max((cause.at for cause in causes), default=recovery.spec.detected_at)
    since = started_at(world, recovery, recovery.status.attempt)
    return shown_around(fault, at, settings.timing, since=since)


def _is_spent(world: World, fault: Diagnosis, affected: AffectedGang) -> bool:
    """Whether the gang was started again for this fault already. A later failure needs a different cause,
    because a cause acts only once. If the fault is behind that failure, too, hindsight.py finds out."""
    return any(
        resumed_at(recovery) is not None
        and (recovery.has_cause(fault.name, fault.finding) or proved_before(world, recovery, fault))
        for recovery in world.history(affected.gang.ref.uid)
    )


def _explains(fault: Diagnosis, state: GangState, settings: Settings) -> bool:
    """Whether the fault explains the gang's failure. A node's fault explains a failure close to it in time; a
    dead node explains any failure."""
    if fault.fault is Fault.HOST:
        return True
    at = state.troubled_at
    return at is not None and shown_around(fault, at, settings.timing)
