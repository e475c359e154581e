"""World -> diagnoses: what broke, who is to blame, whom it harms. Pure; triage/plan.py decides what to do
about it.

Hardware evidence on a node that holds a rank beats what the ranks themselves show: a gang that a node's fault
explains gets no diagnosis of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import Fault
from recover.api import STOPPED_PHASES
from recover.diagnose.apart import Apart, about_gang
from recover.diagnose.diagnosis import Diagnosis, Harm
from recover.diagnose.gang_faults import GangState, gang_faults, gang_state
from recover.diagnose.hindsight import corrections, doubted, shown_around
from recover.diagnose.node_faults import node_faults, not_ready
from recover.diagnose.ranks import is_down, resumed_at
from recover.model import World
from recover.policy.settings import Settings

__all__ = ["Apart", "Diagnosis", "GangState", "Harm", "corrections", "diagnose", "gang_states"]


def diagnose(
    world: World, states: Mapping[str, GangState], settings: Settings, now: datetime, apart: Apart
) -> list[Diagnosis]:
    """Every fault that may need something done now: first those that brought a gang down, each oldest first.
    `states` is what gang_states says."""
    dead = frozenset(uid for uid, state in states.items() if state.dead) | _down(world)
    nodes = list(node_faults(world, dead, settings.timing, now, apart))
    nodes += not_ready(world, dead, now)
    nodes = [_with_failures(world, fault, states, settings) for fault in nodes]
    explained = frozenset(h.gang.ref.uid for d in nodes for h in d.harms if h.explained)
    found = doubted(world, nodes, settings.timing) + list(gang_faults(world, states, explained, now, apart))
    return sorted(found, key=lambda d: (not _brought_down(d), d.detected_at, d.name))


def gang_states(world: World, settings: Settings, now: datetime, apart: Apart) -> dict[str, GangState]:
    """The state of every gang that runs. One that is being stopped, or has ended, has no state of its own."""
    states = {}
    for uid, gang in world.gangs.items():
        recovery = world.active_recovery(uid)
        stopped = recovery is not None and recovery.status.phase in STOPPED_PHASES
        if stopped or gang.suspended or gang.deleting or (gang.terminal and gang.terminal.succeeded):
            continue
        with apart(about_gang(gang)):
            states[uid] = gang_state(world, gang, settings.timing, now)
    return states


def _brought_down(fault: Diagnosis) -> bool:
    return fault.gang is not None or any(harm.explained for harm in fault.harms)


def _down(world: World) -> frozenset[str]:
    """Gangs that we have stopped, or are about to: what their nodes show now belongs to why they died."""
    found = ((gang, world.active_recovery(uid)) for uid, gang in world.gangs.items())
    return frozenset(gang.ref.uid for gang, r in found if r is not None and is_down(r, gang))


def _with_failures(
    world: World, fault: Diagnosis, states: Mapping[str, GangState], settings: Settings
) -> Diagnosis:
    """With the gangs whose failure it explains, and when that was. A suspicion harms no other dead gang."""
    harms = []
    for harm in fault.harms:
        state = states.get(harm.gang.ref.uid)
        is_dead = state is not None and state.dead and not _is_spent(world, fault, harm)
        if state is not None and is_dead and _explains(fault, state, settings):
            harm = msgspec.structs.replace(
                harm, explained=True, failed_at=state.failed_at, born_at=state.born_at
            )
        is_doubtful = harm.is_suspicion and harm.dead and not harm.explained
        if not is_doubtful or _preceded_stop(world, fault, harm, settings):
            harms.append(harm)
    return msgspec.structs.replace(fault, harms=tuple(harms))


def _preceded_stop(world: World, fault: Diagnosis, harm: Harm, settings: Settings) -> bool:
    """The gang is stopped, or about to be, for a failure that the suspicion was shown close to."""
    recovery = world.active_recovery(harm.gang.ref.uid)
    if recovery is None or not is_down(recovery, harm.gang):
        return False
    causes = recovery.status.causes or recovery.spec.causes
    at = max((cause.at for cause in causes), default=recovery.spec.detected_at)
    return shown_around(fault, at, settings.timing)


def _is_spent(world: World, fault: Diagnosis, harm: Harm) -> bool:
    """The gang was started again for it already. A later failure needs a cause of its own: one acts once."""
    return any(
        resumed_at(recovery) is not None and recovery.has_cause(fault.name, fault.finding)
        for recovery in world.history(harm.gang.ref.uid)
    )


def _explains(fault: Diagnosis, state: GangState, settings: Settings) -> bool:
    """A node's fault explains a gang's failure close to it in time; a dead node explains any."""
    if fault.fault is Fault.HOST:
        return True
    at = state.troubled_at
    return at is not None and shown_around(fault, at, settings.timing)
