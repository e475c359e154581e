"""Decides which gangs are restarted now, and for which causes: opens Recoveries, and adds causes to running
Recoveries. Pure.

This is a part of a plan (plan.py), and of a repair that moves gangs off its node (repair/waiting.py). A gang
has one Recovery at a time, and the spec of that Recovery has all causes. The Incident's record of the restart
is only for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from detectors.wire.fitting import fitted, limit
from recover.api import Act, ActionRecord, Cause, GangRef, Phase, Recovery, RecoverySpec
from recover.api.reasons import EventReason, Reason
from recover.diagnose.awaited import Awaited
from recover.diagnose.caught import about_gang
from recover.diagnose.diagnosis import AffectedGang, Diagnosis, fingerprint
from recover.diagnose.pace import pace_before_stop
from recover.diagnose.ranks import is_down, resumed_at
from recover.diagnose.starts import nodes_without_devices, ranks
from recover.diagnose.witnesses import witnesses
from recover.k8s.bodies import body, builtins, shortened
from recover.k8s.kinds import RECOVERIES
from recover.model import Gang, Refusal, World
from recover.model.actions import Action, Create, Emit, Patch
from recover.model.tolerations import of_pods
from recover.policy.consent import CHECKPOINT_ON_SIGTERM, saves_on_sigterm
from recover.triage.capacity import priority_of
from recover.triage.guard import Allowed, Denied, Guard, Verdict
from recover.triage.records import record_of, write_refused

__all__ = [
    "CAUSES_MAX",
    "OPEN_RECOVERY",
    "Grounds",
    "Restart",
    "decided",
    "grounds_of",
    "open_recovery",
    "recovery_name",
    "wanted",
    "writes",
]

OPEN_RECOVERY = "open-recovery"
"""Name of the write that opens a Recovery."""
CAUSES_MAX = limit(RecoverySpec, "causes")
"""Limit of causes in a Recovery's spec. A gang that loses more nodes at once needs no further cause to be
stopped, and the next start avoids the other nodes because of their findings."""


class Grounds(msgspec.Struct, frozen=True):
    """The reason why gangs should be restarted: the cause, as their Recoveries record it, and the facts for
    the checks before."""

    cause: Cause
    """The cause, with attempt 1."""
    detected_at: datetime
    """Time of detection, from the Incident."""
    seen_at: datetime
    """Time of the evidence for which the gangs are to be restarted now. It is later than `detected_at` if the
    fault was shown again."""
    off: str
    """The node that the gangs leave; empty if the fault is not a node's fault."""
    settled: bool = True
    """False while later evidence may still change the blame."""
    lost: tuple[str, ...] = ()
    """The pods of the evidence, in the order of their loss."""


class Restart(msgspec.Struct, frozen=True):
    """A gang that should be restarted now, if that is allowed."""

    grounds: Grounds
    affected: AffectedGang
    recovery: str
    """Name of the Recovery that restarts the gang."""
    running: Recovery | None
    """The same Recovery, if it runs already and gets the cause; None if it is to be opened."""

    @property
    def gang(self) -> Gang:
        return self.affected.gang


def grounds_of(diagnosis: Diagnosis) -> Grounds:
    suspect = diagnosis.suspects[0].node if diagnosis.suspects else ""
    cause = fitted(
        Cause,
        incident=diagnosis.name,
        fault=diagnosis.fault,
        attempt=1,
        at=diagnosis.struck_at or diagnosis.detected_at,
        node=diagnosis.node or suspect,
        summary=diagnosis.summary,
        finding=diagnosis.finding,
        blame=diagnosis.blame,
        error=diagnosis.error,
    )
    return Grounds(
        cause=cause,
        detected_at=diagnosis.detected_at,
        seen_at=diagnosis.seen_at,
        off=diagnosis.node,
        settled=diagnosis.settled,
        lost=tuple(e.pod for e in diagnosis.evidence if e.pod),
    )


def wanted(world: World, grounds: Grounds, affected: AffectedGang, now: datetime) -> Restart | ActionRecord:
    """Returns the restart that should be done now, or a record if nothing has to be decided: a Recovery has
    taken up the cause already, or the gang may continue for now."""
    gang = affected.gang
    taken_up = _taken_up(world, gang, grounds)
    if taken_up is not None:
        return _done(gang, taken_up, now)
    denied = _due(grounds, affected, now)
    if denied is not None:
        return record_of(Act.RESTART_GANG, str(gang.ref), denied, "", now)
    running = world.active_recovery(gang.ref.uid)
    if running is not None:
        return Restart(grounds, affected, running.metadata.name, running)
    return Restart(grounds, affected, recovery_name(gang.ref, _next_number(world, gang)), None)


def decided(
    world: World, wishes: Iterable[Restart | ActionRecord], guard: Guard, now: datetime
) -> tuple[list[ActionRecord], list[Restart]]:
    """Returns the record of each wish for the fault's Incident, and the restarts that are allowed."""
    records, allowed = [], []
    for wish in wishes:
        if isinstance(wish, ActionRecord):
            records.append(wish)
            continue
        verdict = guard.may_restart(wish.affected, wish.grounds.seen_at, wish.grounds.off)
        records.append(_answered(world, wish, verdict, now))
        if isinstance(verdict, Allowed):
            allowed.append(wish)
            guard = guard.after_restart(wish.gang)
    return records, allowed


def _answered(world: World, restart: Restart, verdict: Verdict, now: datetime) -> ActionRecord:
    refusal = _refusal(world, restart)
    if isinstance(verdict, Denied):
        return record_of(Act.RESTART_GANG, str(restart.gang.ref), verdict, "", now)
    if refusal is not None:
        return record_of(Act.RESTART_GANG, str(restart.gang.ref), write_refused(refusal), "", now)
    return _done(restart.gang, restart.recovery, now)


def writes(world: World, restarts: Iterable[Restart], now: datetime) -> Iterator[tuple[Action, ...]]:
    """Yields one chain for each gang, with all its causes. Recoveries to open come first."""
    by_gang: dict[str, list[Restart]] = {}
    for restart in restarts:
        by_gang.setdefault(restart.gang.ref.uid, []).append(restart)
    for of_one in sorted(by_gang.values(), key=lambda of_one: of_one[0].running is not None):
        first, grounds = of_one[0], [restart.grounds for restart in of_one]
        refusal = _refusal(world, first)
        if refusal is not None and refusal.left_s(now) > 0:
            continue
        if first.running is None:
            yield open_recovery(world, first.gang, grounds)
        else:
            yield from _cause_added(first.running, first.gang, grounds)


def _refusal(world: World, restart: Restart) -> Refusal | None:
    return world.refusal(RECOVERIES, restart.recovery, restart.gang.ref.namespace)


def _done(gang: Gang, recovery: str, now: datetime) -> ActionRecord:
    words = f"Recovery {recovery} restarts the whole gang from its last complete checkpoint"
    return record_of(Act.RESTART_GANG, str(gang.ref), Allowed(), words, now)


def recovery_name(gang: GangRef, number: int) -> str:
    """Returns the name of a Recovery. The name is short enough for the names of its scan pods, too."""
    return f"{gang.kind.lower()}-{shortened(gang.name, 150)}-{fingerprint(gang.uid, str(number))}"


# --- whether ----------------------------------------------------------------------------------------------


def _taken_up(world: World, gang: Gang, grounds: Grounds) -> str | None:
    """Returns the name of the recovery that has this cause, or None. A cause acts only once on a gang. A
    recovery that ended Failed, for example because of a hold, does not count, even if an earlier attempt of
    it restarted the gang. If the fault is shown again on a node to which the gang came back, the cause is
    new."""
    for recovery in world.history(gang.ref.uid):
        began = None if recovery.active else resumed_at(recovery)
        is_news = began is not None and grounds.seen_at > began
        if (
            recovery.status.phase is not Phase.FAILED
            and not is_news
            and recovery.has_cause(grounds.cause.incident, grounds.cause.finding)
        ):
            return recovery.metadata.name
    return None


def _due(grounds: Grounds, affected: AffectedGang, now: datetime) -> Denied | None:
    """Returns a refusal while the gang still trains and may continue for now, or None."""
    if affected.due is not None and affected.due <= now:
        return None
    if affected.due is None:
        return Denied(
            Reason.STILL_TRAINING, f"Rekindle does not know that {affected.gang.ref} has stopped training"
        )
    if grounds.settled:
        return Denied(
            Reason.STILL_TRAINING,
            f"{affected.gang.ref} continues to train, and Rekindle moves the job {_later(grounds, affected)}",
        )
    return Denied(
        Reason.STILL_TRAINING,
        f"Rekindle decides at {affected.due:%H:%M:%S} UTC, when all evidence has arrived",
    )


def _later(grounds: Grounds, affected: AffectedGang) -> str:
    """Returns when a gang that trains on a degraded node is moved, and why not before."""
    at = f"at {affected.due:%H:%M:%S} UTC (checkpoint_grace_s)"
    if affected.awaited is Awaited.NEXT:
        return f"at its next checkpoint, at the latest {at}"
    if affected.awaited is Awaited.MOVED_BEFORE:
        return f"{at}, because the job was moved off {grounds.off} for this fault before and came back"
    unseen = "no line of the job's log has shown so far that a checkpoint is complete"
    if saves_on_sigterm(affected.gang.annotations):
        return f"{at}, because {grounds.off} was degraded before the job came there, and {unseen}"
    return (
        f"{at}, because {unseen}. With the annotation {CHECKPOINT_ON_SIGTERM}: true on the job, Rekindle "
        "would move the job at once, and the job would save a checkpoint when it is stopped"
    )


# --- the writes -------------------------------------------------------------------------------------------


def open_recovery(world: World, gang: Gang, grounds: Sequence[Grounds]) -> tuple[Action, ...]:
    """Returns the writes for a new Recovery of the gang for all these causes. The Event and the summary name
    the first of the causes."""
    first, pods = grounds[0], ranks(world, gang)
    cause, number = first.cause, _next_number(world, gang)
    name = recovery_name(gang.ref, number)
    spec = fitted(
        RecoverySpec,
        gang=gang.ref,
        number=number,
        incident=cause.incident,
        fault=cause.fault,
        detected_at=first.detected_at,
        summary=cause.summary,
        avoid_node=cause.node,
        causes=[one.cause for one in grounds],
        nodes=sorted({p.node for p in pods if p.node}),
        nodes_without_devices=nodes_without_devices(world, pods),
        gpus=min(
            sum(p.accelerators for p in pods), gang.size * max((p.accelerators for p in pods), default=0)
        ),
        witnesses=witnesses(world, gang, first.lost, [first.off]),
        pace=pace_before_stop(world, pods, {one.cause.fault for one in grounds}),
        priority=priority_of(world, gang),
        tolerations=of_pods(world, gang),
    )
    return (
        Create(
            what=OPEN_RECOVERY,
            resource=RECOVERIES,
            name=name,
            namespace=gang.ref.namespace,
            body=body(RECOVERIES, name, gang.ref.namespace, spec=spec),
        ),
        Emit(
            reason=EventReason.RECOVERY_PLANNED,
            message=f"Rekindle stops and restarts the job: {spec.summary}. Recovery {name}",
            regarding=about_gang(gang),
            key=name,
        ),
    )


def _cause_added(running: Recovery, gang: Gang, grounds: Sequence[Grounds]) -> Iterator[tuple[Action, ...]]:
    """Yields the patch that adds these causes to the running Recovery, unless it has them already."""
    attempt = running.status.attempt
    news = [msgspec.structs.replace(one.cause, attempt=attempt) for one in grounds]
    causes = _bounded([*running.spec.causes, *news], is_stopped=is_down(running, gang))
    if causes != running.spec.causes:
        yield (
            Patch(
                what="tell-recovery",
                resource=RECOVERIES,
                name=running.metadata.name,
                namespace=running.metadata.namespace,
                uid=running.metadata.uid,
                version=running.metadata.resource_version,
                body={"spec": {"causes": [builtins(cause) for cause in causes]}},
            ),
        )


def _bounded(causes: list[Cause], *, is_stopped: bool) -> list[Cause]:
    """Cuts the causes to the limit. A gang that is stopped already needs no more causes than fit. A gang that
    runs again is stopped by a new cause, which takes the place of the oldest cause."""
    return causes[:CAUSES_MAX] if is_stopped else causes[-CAUSES_MAX:]


def _next_number(world: World, gang: Gang) -> int:
    """Returns the number of the next Recovery. If a person deleted the last Recovery, its name remains in the
    job's mark. The next Recovery needs a different name, or it would take the actions in the mark for its
    own."""
    history = world.history(gang.ref.uid)
    number = history[-1].spec.number + 1 if history else 1
    is_marked = gang.mark is not None and gang.mark.recovery == recovery_name(gang.ref, number)
    return number + 1 if is_marked else number
