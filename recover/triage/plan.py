"""Diagnoses -> plan: what to write now about nodes, incidents and new recoveries, and why not more. Pure.

The node's patch, each gang's Recovery and the Incident that explains them are written independently: one
that the API server refuses stops none of the others, and the Incident says that it was refused. Each is a
no-op if it has happened already, so a crash between them, or a second look, changes nothing. A running
Recovery's own steps are phases/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from detectors.wire.contract import Fault
from recover.api import Act, ActionRecord, Outcome
from recover.api.reasons import EventReason, Reason
from recover.diagnose.apart import Apart, about_gang, about_node
from recover.diagnose.diagnosis import Diagnosis
from recover.diagnose.gang_faults import GangState
from recover.diagnose.hindsight import corrections
from recover.diagnose.node_faults import comes_due
from recover.diagnose.whole import diagnose, gang_states
from recover.model import World
from recover.model.actions import Action, Emit, Plan
from recover.policy.faults import QuarantineLevel, quarantine_level
from recover.policy.settings import Settings
from recover.triage import incidents, quarantine, remade, restarts
from recover.triage.absent import unconfirmed
from recover.triage.advice import advise
from recover.triage.brake_incidents import HeldBack, brakes
from recover.triage.guard import Allowed, Denied, Guard
from recover.triage.left_behind import left_behind
from recover.triage.records import record_of, write_refused
from recover.triage.spares import would_lift

__all__ = ["plan"]


def plan(world: World, settings: Settings, now: datetime) -> Plan:
    """Everything that triage wants written now, and when to look again if nothing changes before."""
    apart = Apart()
    states = gang_states(world, settings, now, apart)
    found = diagnose(world, states, settings, now, apart)
    guard = Guard(world, found, settings, now)
    chains: list[tuple[Action, ...]] = [(read,) for read in unconfirmed(world)]
    chains += quarantine.releases(world, now)
    started: list[restarts.Restart] = []
    explained: list[tuple[Action, ...]] = []
    held_back: dict[Fault, list[HeldBack]] = {}
    proved = corrections(world, found, settings.timing)
    named = {fault.name for fault in proved.values()}
    lost = remade.missing(world, {diagnosis.name for diagnosis in found}, now)
    for diagnosis in found:
        with apart(_about(world, diagnosis)):
            records = [remade.record(lost[diagnosis.name], now)] if diagnosis.name in lost else []
            records += _blind(world, diagnosis, now)
            writes = _node(world, diagnosis, guard, records, now)
            grounds = restarts.grounds_of(diagnosis)
            wishes = [restarts.wanted(world, grounds, harm, now) for harm in diagnosis.harms]
            said, allowed = restarts.asked(world, wishes, guard, now)
            records += said
            started += allowed
            chains.append(tuple(writes))
            if diagnosis.name not in named and _is_member(world, diagnosis, records):
                held_back.setdefault(diagnosis.fault, []).append(HeldBack(diagnosis, records))
                continue
            explained.append(tuple(incidents.explain(world, diagnosis, records)))
    chains += [*restarts.writes(world, started, now), *explained]
    chains += [(action,) for action in brakes(world, guard.brakes, held_back, now)]
    chains += [(action,) for action in incidents.superseded(world, proved, now)]
    chains += [(action,) for action in incidents.missing(world, found, now)]
    told = advise(world, now, apart)
    chains += incidents.advised(world, told, now)
    live = {diagnosis.name for diagnosis in found} | {advice.name for advice in told} | proved.keys()
    live |= apart.undecided(world) | _suspicious(world, states)
    chains += left_behind(world, now)
    chains += remade.remade(lost, live, now)
    chains += [(action,) for action in incidents.closings(world, live, now)]
    return Plan(
        chains=tuple(chain for chain in chains if chain),
        look_again_s=_look_again(world, found, states, guard, settings, now),
        failures=tuple(apart.failures),
    )


def _is_member(world: World, diagnosis: Diagnosis, records: list[ActionRecord]) -> bool:
    """Whether the brake alone kept this node from being acted on. Then the brake's Incident names the node,
    and the node needs no Incident of its own."""
    is_braked = any(r.action == Act.QUARANTINE_NODE and r.reason == Reason.FLEET_BRAKE for r in records)
    is_acted_on = any(r.outcome is Outcome.DONE for r in records)
    return is_braked and not is_acted_on and world.has_no_incident(diagnosis.name)


def _suspicious(world: World, states: Mapping[str, GangState]) -> set[str]:
    """Incidents of gangs of which time must tell whether they have failed once more: that joins them."""
    uids = {uid for uid, state in states.items() if state.suspicious}
    about = ((name, incident.spec.gang) for name, incident in world.incidents.items() if uids)
    return {name for name, gang in about if gang is not None and gang.uid in uids}


def _about(world: World, diagnosis: Diagnosis) -> dict[str, str]:
    node = world.nodes.get(diagnosis.node)
    if node is not None:
        return about_node(node)
    assert diagnosis.gang is not None, "a diagnosis is about a node that is there, or about a gang"
    return about_gang(diagnosis.gang)


# --- the node ---------------------------------------------------------------------------------------------


def _node(
    world: World, diagnosis: Diagnosis, guard: Guard, records: list[ActionRecord], now: datetime
) -> list[Action]:
    """Takes the blamed node out, once the blame is settled and unless that was done already."""
    node = world.nodes.get(diagnosis.node)
    level = quarantine_level(diagnosis.fault, diagnosis.severity, drain=diagnosis.drain)
    if node is None or level is QuarantineLevel.NONE:
        return []
    if level is QuarantineLevel.CORDON and not diagnosis.settled:
        return []
    words, ours = quarantine.words(level, diagnosis.fault), node.quarantine
    if ours is not None and not quarantine.is_stronger(level, node):
        if ours.incident == diagnosis.name:  # a crash may have come before the incident's own write
            records.append(record_of(Act.QUARANTINE_NODE, node.name, Allowed(), words, ours.at))
        return []
    refusal, is_under_way = world.refused.get(f"/{node.name}"), node.name in world.taking
    if refusal is not None and (is_under_way or refusal.pause_s(now)):
        # It takes no budget between two tries: that is for nodes that can be written.
        records.append(record_of(Act.QUARANTINE_NODE, node.name, write_refused(refusal), "", now))
        return []
    if is_under_way:
        records.append(record_of(Act.QUARANTINE_NODE, node.name, Allowed(), words, now))
        return []
    verdict = guard.may_quarantine(node, diagnosis.name, diagnosis.seen_at, level)
    said = write_refused(refusal) if refusal is not None and isinstance(verdict, Allowed) else verdict
    records.append(record_of(Act.QUARANTINE_NODE, node.name, said, words, now))
    if isinstance(verdict, Denied) and level is QuarantineLevel.CORDON:
        records += would_lift(world, node, now) if verdict.would else _no_more(world, diagnosis, verdict, now)
    if not isinstance(verdict, Allowed):
        return []
    return [
        quarantine.quarantine(node, diagnosis.name, diagnosis.fault, level, now),
        Emit(
            reason=EventReason.NODE_QUARANTINED,
            message=f"{diagnosis.summary}. {words}. Incident {diagnosis.name}",
            regarding=about_node(node),
            warning=True,
            key=diagnosis.name,
        ),
    ]


def _blind(world: World, diagnosis: Diagnosis, now: datetime) -> Iterator[ActionRecord]:
    """Nodes that may be to blame and cannot be judged stay in service; that is said of each."""
    for name, why in diagnosis.blind.items():
        node = world.nodes.get(name)
        if node is not None and node.quarantine is None:
            yield record_of(Act.QUARANTINE_NODE, name, Denied(Reason.BLIND, why), "", now)


def _no_more(world: World, diagnosis: Diagnosis, denied: Denied, now: datetime) -> Iterator[ActionRecord]:
    """A node that stays in service needs no spare: what was said in mode observe no longer holds."""
    incident = world.incidents.get(diagnosis.name)
    for record in incident.status.actions if incident is not None else ():
        if record.action == Act.LIFT_SPARE and record.outcome is Outcome.WOULD:
            yield record_of(Act.LIFT_SPARE, record.target, denied, "", now)


# --- time -------------------------------------------------------------------------------------------------


def _look_again(
    world: World,
    found: list[Diagnosis],
    states: Mapping[str, GangState],
    guard: Guard,
    settings: Settings,
    now: datetime,
) -> float | None:
    """Seconds until time alone may change a decision."""
    moments = [d.settles_at for d in found if d.settles_at is not None and d.settles_at > now]
    moments += [h.due for d in found for h in d.harms if h.due is not None and h.due > now]
    moments += [brake.until for brake in guard.brakes]
    moments += [moment for moment in comes_due(world, now) if moment > now]
    first_steps = (state.first_step_due for state in states.values())
    moments += [due for due in first_steps if due is not None and due > now]
    waits = [(moment - now).total_seconds() for moment in moments]
    if any(state.suspicious for state in states.values()):
        waits.append(min(settings.timing.in_place_grace_s, settings.timing.deleted_settle_s) / 2)
    waits += [pause_s for refusal in world.refused.values() if (pause_s := refusal.pause_s(now))]
    if any(r.outcome is Outcome.REFUSED for i in world.incidents.values() for r in i.status.actions):
        waits.append(60.0)
    return max(0.01, min(waits)) if waits else None
