"""Decides which of the wished actions are done, by budgets, brakes, modes and holds, in the order of the
faults. Pure.

The part of a budget that one fault uses is not available to the next fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial

import msgspec

from recover.api import Act, ActionRecord, Outcome
from recover.api.reasons import EventReason
from recover.diagnose.caught import about_diagnosis, about_node, caught
from recover.diagnose.diagnosis import Diagnosis
from recover.model import World
from recover.model.actions import Action, Emit, Failure
from recover.policy.faults import QuarantineLevel
from recover.triage import quarantine, restarts
from recover.triage.guard import Allowed, Denied, Guard, Verdict
from recover.triage.records import record_of, write_refused
from recover.triage.restarts import Restart
from recover.triage.spares import would_lift
from recover.triage.wishes import NodeAction, Wish

__all__ = ["Decision", "decide"]


class Decision(msgspec.Struct, frozen=True):
    """The actions and records for one fault."""

    diagnosis: Diagnosis
    records: list[ActionRecord]
    writes: tuple[Action, ...]
    """Writes to the node."""
    restarts: list[Restart]
    takes_out: bool
    """Whether the node leaves service by these writes, which uses the budgets of quarantines."""


def decide(
    world: World, wishes: Iterable[Wish], guard: Guard, now: datetime
) -> tuple[list[Decision], list[Failure]]:
    """Returns one decision for each wish, and the wishes that could not be decided."""
    decisions, failures = [], []
    for wish in wishes:
        diagnosis = wish.diagnosis
        decision = caught(about_diagnosis(world, diagnosis), partial(_decided, world, wish, guard, now))
        if isinstance(decision, Failure):
            failures.append(decision)
            continue
        decisions.append(decision)
        if decision.takes_out:
            guard = guard.after(diagnosis.node, diagnosis.name)
        for restart in decision.restarts:
            guard = guard.after_restart(restart.gang)
    return decisions, failures


def _decided(world: World, wish: Wish, guard: Guard, now: datetime) -> Decision:
    diagnosis, asked = wish.diagnosis, wish.node
    said: list[ActionRecord] = [asked] if isinstance(asked, ActionRecord) else []
    writes: tuple[Action, ...] = ()
    takes_out = False
    if isinstance(asked, NodeAction):
        verdict = guard.may_quarantine(asked.node, diagnosis.name, diagnosis.seen_at, asked.level)
        said = list(_said(world, diagnosis, asked, verdict, now))
        if isinstance(verdict, Allowed):
            writes = _taken_out(diagnosis, asked, now)
            takes_out = asked.level is QuarantineLevel.CORDON
    told, allowed = restarts.decided(world, wish.gangs, guard, now)
    return Decision(diagnosis, [*wish.known, *said, *told], writes, allowed, takes_out)


def _said(
    world: World, diagnosis: Diagnosis, asked: NodeAction, verdict: Verdict, now: datetime
) -> Iterator[ActionRecord]:
    refusal = asked.refusal
    said = write_refused(refusal) if refusal is not None and isinstance(verdict, Allowed) else verdict
    yield record_of(Act.QUARANTINE_NODE, asked.node.name, said, asked.words, now)
    if not isinstance(verdict, Denied) or asked.level is not QuarantineLevel.CORDON:
        return
    if verdict.would:
        yield from would_lift(world, asked.node, verdict.reason, now)
    else:
        yield from _no_more(world, diagnosis, verdict, now)


def _no_more(world: World, diagnosis: Diagnosis, denied: Denied, now: datetime) -> Iterator[ActionRecord]:
    """In mode observe Rekindle has recorded that it would use a spare. Yields the refusals that replace these
    records if the node stays in service, and so needs no spare."""
    incident = world.incidents.get(diagnosis.name)
    for record in incident.status.actions if incident is not None else ():
        if record.action == Act.LIFT_SPARE and record.outcome is Outcome.WOULD:
            yield record_of(Act.LIFT_SPARE, record.target, denied, "", now)


def _taken_out(diagnosis: Diagnosis, asked: NodeAction, now: datetime) -> tuple[Action, ...]:
    return (
        quarantine.quarantine(asked.node, diagnosis.name, diagnosis.fault, asked.level, now),
        Emit(
            reason=EventReason.NODE_QUARANTINED,
            message=f"{quarantine.announced(asked.node.name, asked.words, diagnosis.summary)}. "
            f"Incident {diagnosis.name}",
            regarding=about_node(asked.node),
            warning=True,
            key=diagnosis.name,
        ),
    )
