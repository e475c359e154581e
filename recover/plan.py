"""Diagnoses -> plan: what to write now about nodes, incidents and new recoveries, and why not more. Pure.

The node's patch, each gang's Recovery and the Incident that explains them are written independently: one
that the API server refuses stops none of the others, and the Incident says that it was refused. Each is a
no-op if it has happened already, so a crash between them, or a second look, changes nothing. A running
Recovery's own steps are phases/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from recover import incidents, nodes, remade
from recover.actions import Action, Create, Emit, Plan
from recover.advice import advise
from recover.api import ActionRecord, GangRef, Outcome, Phase, RecoverySpec
from recover.diagnose import Apart, Diagnosis, GangState, Harm, corrections, diagnose, gang_states
from recover.diagnose.apart import about_gang, about_node
from recover.diagnose.model import fingerprint
from recover.diagnose.ranks import ranks, resumed_at
from recover.guard import QUARANTINE_NODE, RESTART_GANG, Allowed, Denied, Guard, Verdict
from recover.model import REFUSED_AGAIN_S, Gang, Refusal, World
from recover.objects import body, shortened
from recover.policy import QuarantineLevel, quarantine_level
from recover.reasons import EventReason, Reason
from recover.resources import RECOVERIES
from recover.settings import Settings
from recover.spares import LIFT_SPARE, would_lift
from recover.witnesses import witnesses

__all__ = ["plan", "restart"]


def plan(world: World, settings: Settings, now: datetime) -> Plan:
    """Everything that triage wants written now, and when to look again if nothing changes before."""
    apart = Apart()
    states = gang_states(world, settings, now, apart)
    found = diagnose(world, states, settings, now, apart)
    guard = Guard(world, found, settings, now)
    chains: list[tuple[Action, ...]] = [(a,) for a in incidents.brakes(world, guard.brakes, now)]
    chains += nodes.releases(world, now)
    started: set[str] = set()
    lost = remade.missing(world, {diagnosis.name for diagnosis in found}, now)
    for diagnosis in found:
        with apart(_about(world, diagnosis)):
            records = [remade.record(lost[diagnosis.name], now)] if diagnosis.name in lost else []
            records += _blind(world, diagnosis, now)
            quarantine = _node(world, diagnosis, guard, records, now)
            restarts = [
                restart(world, diagnosis, harm, guard, records, started, now) for harm in diagnosis.harms
            ]
            chains += [tuple(quarantine), *map(tuple, restarts)]
            chains.append(tuple(incidents.explain(world, diagnosis, records)))
    proved = corrections(world, found, settings.timing)
    chains += [(action,) for action in incidents.superseded(world, proved, now)]
    chains += [(action,) for action in incidents.missing(world, found, now)]
    told = advise(world, now, apart)
    chains += incidents.advised(world, told, now)
    live = {diagnosis.name for diagnosis in found} | {advice.name for advice in told} | proved.keys()
    live |= apart.undecided(world) | _suspicious(world, states)
    chains += remade.remade(lost, live, now)
    chains += [(action,) for action in incidents.closings(world, live, now)]
    return Plan(
        chains=tuple(chain for chain in chains if chain),
        look_again_s=_look_again(world, found, states, guard, settings, now),
        failures=tuple(apart.failures),
    )


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
    if node is None or level is QuarantineLevel.NONE or not diagnosis.settled:
        return []
    words, ours = nodes.words(level, diagnosis), node.quarantine
    if ours is not None and not nodes.is_stronger(level, node):
        if ours.incident == diagnosis.name:  # a crash may have come before the incident's own write
            records.append(_record(QUARANTINE_NODE, node.name, Allowed(), words, ours.at))
        return []
    refusal = world.refused.get(f"/{node.name}")
    if refusal is not None and refusal.pause_s(now):  # the budget is for nodes that can be written
        records.append(_record(QUARANTINE_NODE, node.name, _refused(refusal), "", now))
        return []
    verdict = guard.may_quarantine(node, diagnosis)
    said = _refused(refusal) if refusal is not None and isinstance(verdict, Allowed) else verdict
    records.append(_record(QUARANTINE_NODE, node.name, said, words, now))
    if isinstance(verdict, Denied) and level is QuarantineLevel.CORDON:
        records += would_lift(world, node, now) if verdict.would else _no_more(world, diagnosis, verdict, now)
    if not isinstance(verdict, Allowed):
        return []
    return [
        nodes.quarantine(node, diagnosis, level, now),
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
            yield _record(QUARANTINE_NODE, name, Denied(Reason.BLIND, why), "", now)


def _no_more(world: World, diagnosis: Diagnosis, denied: Denied, now: datetime) -> Iterator[ActionRecord]:
    """A node that stays in service needs no spare: what was said in mode observe no longer holds."""
    incident = world.incidents.get(diagnosis.name)
    for record in incident.status.actions if incident is not None else ():
        if record.action == LIFT_SPARE and record.outcome is Outcome.WOULD:
            yield _record(LIFT_SPARE, record.target, denied, "", now)


# --- the gang ---------------------------------------------------------------------------------------------


def restart(
    world: World,
    diagnosis: Diagnosis,
    harm: Harm,
    guard: Guard,
    records: list[ActionRecord],
    started: set[str],
    now: datetime,
) -> list[Action]:
    """Opens a Recovery for a gang that must be restarted now. A running one is told by the incident's record:
    it reads there that it shall take the cause up."""
    gang = harm.gang
    taken_up = _taken_up(world, gang, diagnosis)
    if taken_up is not None:
        records.append(_done(gang, taken_up, now))
        return []
    if gang.ref.uid in started:
        return []
    verdict = _due(diagnosis, harm, now) or guard.may_restart(diagnosis, harm)
    if isinstance(verdict, Denied):
        records.append(_record(RESTART_GANG, str(gang.ref), verdict, "", now))
        return []
    running = world.active_recovery(gang.ref.uid)
    if running is not None:
        records.append(_done(gang, running.metadata.name, now))
        return []
    started.add(gang.ref.uid)
    spec = _recovery_spec(world, diagnosis, gang)
    name = recovery_name(gang.ref, spec.number)
    refusal = world.refused.get(f"{gang.ref.namespace}/{name}")
    if refusal is not None:
        records.append(_record(RESTART_GANG, str(gang.ref), _refused(refusal), "", now))
    else:
        records.append(_done(gang, name, now))
    if refusal is not None and refusal.pause_s(now):
        return []
    return [
        Create(
            what="open-recovery",
            resource=RECOVERIES,
            name=name,
            namespace=gang.ref.namespace,
            body=body(RECOVERIES, name, gang.ref.namespace, spec=spec),
        ),
        Emit(
            reason=EventReason.RECOVERY_PLANNED,
            message=f"{diagnosis.summary}. Recovery {name}",
            regarding=about_gang(gang),
            key=name,
        ),
    ]


def _taken_up(world: World, gang: Gang, diagnosis: Diagnosis) -> str | None:
    """The recovery that names this cause, if any: a cause acts once on a gang. One that ended Failed, as by a
    hold, has not acted; and a fault that shows anew on a node where the gang is again is none of before."""
    for recovery in world.history(gang.ref.uid):
        began = None if recovery.active else resumed_at(recovery)
        is_news = began is not None and diagnosis.seen_at > began
        if (
            recovery.status.phase is not Phase.FAILED
            and not is_news
            and diagnosis.name in recovery.cause_names
        ):
            return recovery.metadata.name
    return None


def _done(gang: Gang, recovery: str, now: datetime) -> ActionRecord:
    return ActionRecord(
        at=now,
        action=RESTART_GANG,
        target=str(gang.ref),
        outcome=Outcome.DONE,
        message=f"Recovery {recovery} restarts the whole gang from its last complete checkpoint",
    )


def _due(diagnosis: Diagnosis, harm: Harm, now: datetime) -> Denied | None:
    """Denied while the gang still trains and may go on for now."""
    if harm.due is not None and harm.due <= now:
        return None
    if harm.due is None:
        return Denied(Reason.STILL_TRAINING, f"{harm.gang.ref} is not known to have stopped training")
    if diagnosis.settled:
        return Denied(
            Reason.STILL_TRAINING,
            f"{harm.gang.ref} trains on; it is moved at its next checkpoint, at the latest at "
            f"{harm.due:%H:%M:%S}",
        )
    return Denied(Reason.STILL_TRAINING, f"the verdict settles at {harm.due:%H:%M:%S}")


def _recovery_spec(world: World, diagnosis: Diagnosis, gang: Gang) -> RecoverySpec:
    pods = ranks(world, gang)
    lost = [e.pod for e in diagnosis.evidence if e.pod]
    return RecoverySpec(
        gang=gang.ref,
        number=_next_number(world, gang),
        incident=diagnosis.name,
        fault=diagnosis.fault,
        detected_at=diagnosis.detected_at,
        summary=diagnosis.summary,
        avoid_node=diagnosis.node or (diagnosis.suspects[0].node if diagnosis.suspects else ""),
        nodes=sorted({p.node for p in pods if p.node})[:4096],
        gpus=min(
            sum(p.accelerators for p in pods), gang.size * max((p.accelerators for p in pods), default=0)
        ),
        witnesses=witnesses(world, gang, lost, [diagnosis.node]),
    )


def _next_number(world: World, gang: Gang) -> int:
    """Whoever deletes the last Recovery leaves its name in the job's mark. The next one needs another, or it
    would take what the mark says for its own acts."""
    history = world.history(gang.ref.uid)
    number = history[-1].spec.number + 1 if history else 1
    is_marked = gang.mark is not None and gang.mark.recovery == recovery_name(gang.ref, number)
    return number + 1 if is_marked else number


def recovery_name(gang: GangRef, number: int) -> str:
    """Short enough for the names of its scan pods, too."""
    return f"{gang.kind.lower()}-{shortened(gang.name, 150)}-{fingerprint(gang.uid, str(number))}"


# --- records and time -------------------------------------------------------------------------------------


def _refused(refusal: Refusal) -> Denied:
    """The record of a write that the API server refuses, also while it is tried again."""
    words = f"the API server refuses this write, and it is tried again every {REFUSED_AGAIN_S:g} s"
    return Denied(Reason.WRITE_REFUSED, f"{words}: {refusal.words}")


def _record(action: str, target: str, verdict: Verdict, words: str, now: datetime) -> ActionRecord:
    match verdict:
        case Allowed():
            return ActionRecord(
                at=now, action=action, target=target, outcome=Outcome.DONE, message=words[:512]
            )
        case Denied():
            outcome = Outcome.WOULD if verdict.would else Outcome.REFUSED
            return ActionRecord(
                at=now,
                action=action,
                target=target,
                outcome=outcome,
                reason=verdict.reason,
                message=verdict.message[:512],
            )


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
    waits = [(moment - now).total_seconds() for moment in moments]
    if any(state.suspicious for state in states.values()):
        waits.append(min(settings.timing.in_place_grace_s, settings.timing.deleted_settle_s) / 2)
    waits += [pause_s for refusal in world.refused.values() if (pause_s := refusal.pause_s(now))]
    if any(r.outcome is Outcome.REFUSED for i in world.incidents.values() for r in i.status.actions):
        waits.append(60.0)
    return max(0.01, min(waits)) if waits else None
