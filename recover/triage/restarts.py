"""Which gangs are restarted now, and for which causes: Recoveries to open, and running Recoveries that get a
further cause. Pure.

Part of a plan (plan.py), and of a repair that moves gangs off its node (repair/waiting.py). A gang has one
Recovery at a time, and all its causes stand in that Recovery's own spec; the Incident's record of it is only
for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from recover.api import Act, ActionRecord, Cause, GangRef, Phase, Recovery, RecoverySpec
from recover.api.reasons import EventReason, Reason
from recover.diagnose.apart import about_gang
from recover.diagnose.awaited import Awaited
from recover.diagnose.diagnosis import Diagnosis, Harm, fingerprint
from recover.diagnose.ranks import is_down, resumed_at
from recover.diagnose.starts import ranks
from recover.diagnose.witnesses import witnesses
from recover.k8s.bodies import body, builtins, shortened
from recover.k8s.kinds import RECOVERIES
from recover.model import Gang, Refusal, World
from recover.model.actions import Action, Create, Emit, Patch
from recover.policy.consent import CHECKPOINT_ON_SIGTERM, saves_on_sigterm
from recover.triage.guard import Allowed, Denied, Guard
from recover.triage.records import record_of, write_refused

__all__ = ["CAUSES_MAX", "Restarts", "recovery_name"]

CAUSES_MAX = 64
"""Limit of causes in a Recovery's spec. A gang that loses more nodes at once needs no further cause to be
stopped, and the findings of the other nodes exclude them."""


class _Opening(msgspec.Struct):
    """A Recovery that this plan opens."""

    gang: Gang
    name: str
    spec: RecoverySpec


class Restarts:
    """Takes one harm after the other, and yields each gang's writes once all causes are known."""

    def __init__(self, world: World, guard: Guard, now: datetime) -> None:
        self._world = world
        self._guard = guard
        self._now = now
        self._opening: dict[str, _Opening] = {}
        """By the gang's uid."""
        self._joining: dict[str, tuple[Gang, Recovery, list[Cause]]] = {}
        """By the gang's uid: a running recovery, and the causes that are added to it now."""

    def consider(self, diagnosis: Diagnosis, harm: Harm) -> ActionRecord:
        """Decides whether the gang is restarted for this fault, and returns the record for the fault's
        Incident."""
        gang = harm.gang
        taken_up = _taken_up(self._world, gang, diagnosis)
        if taken_up is not None:
            return self._done(gang, taken_up)
        verdict = _due(diagnosis, harm, self._now) or self._guard.may_restart(diagnosis, harm)
        if isinstance(verdict, Denied):
            return record_of(Act.RESTART_GANG, str(gang.ref), verdict, "", self._now)
        running = self._world.active_recovery(gang.ref.uid)
        if running is not None:
            _, _, causes = self._joining.setdefault(gang.ref.uid, (gang, running, []))
            causes.append(_cause(diagnosis, running.status.attempt))
            return self._done_unless_refused(gang, running.metadata.name)
        return self._open(gang, diagnosis)

    def chains(self) -> Iterator[tuple[Action, ...]]:
        """One chain of writes for each gang."""
        for opening in self._opening.values():
            if not self._pauses(opening.gang.ref, opening.name):
                yield _opened(opening)
        for gang, running, causes in self._joining.values():
            told = _bounded([*running.spec.causes, *causes], is_stopped=is_down(running, gang))
            if told != running.spec.causes and not self._pauses(gang.ref, running.metadata.name):
                yield (_told(running, told),)

    def _open(self, gang: Gang, diagnosis: Diagnosis) -> ActionRecord:
        opening = self._opening.get(gang.ref.uid)
        if opening is None:
            spec = _recovery_spec(self._world, diagnosis, gang)
            opening = _Opening(gang, recovery_name(gang.ref, spec.number), spec)
        else:
            causes = [*opening.spec.causes, _cause(diagnosis, 1)][:CAUSES_MAX]
            opening = _Opening(gang, opening.name, msgspec.structs.replace(opening.spec, causes=causes))
        self._opening[gang.ref.uid] = opening
        return self._done_unless_refused(gang, opening.name)

    def _refusal(self, gang: GangRef, recovery: str) -> Refusal | None:
        return self._world.refused.get(f"{gang.namespace}/{recovery}")

    def _pauses(self, gang: GangRef, recovery: str) -> bool:
        refusal = self._refusal(gang, recovery)
        return refusal is not None and refusal.pause_s(self._now) > 0

    def _done_unless_refused(self, gang: Gang, recovery: str) -> ActionRecord:
        refusal = self._refusal(gang.ref, recovery)
        if refusal is None:
            return self._done(gang, recovery)
        return record_of(Act.RESTART_GANG, str(gang.ref), write_refused(refusal), "", self._now)

    def _done(self, gang: Gang, recovery: str) -> ActionRecord:
        words = f"Recovery {recovery} restarts the whole gang from its last complete checkpoint"
        return record_of(Act.RESTART_GANG, str(gang.ref), Allowed(), words, self._now)


def recovery_name(gang: GangRef, number: int) -> str:
    """Short enough for the names of its scan pods, too."""
    return f"{gang.kind.lower()}-{shortened(gang.name, 150)}-{fingerprint(gang.uid, str(number))}"


# --- whether ----------------------------------------------------------------------------------------------


def _taken_up(world: World, gang: Gang, diagnosis: Diagnosis) -> str | None:
    """Returns the recovery that has this cause, if any: a cause acts once on a gang. A recovery that ended
    Failed, for example because of a hold, has not acted. A fault that is shown again on a node to which the
    gang came back is a new cause."""
    for recovery in world.history(gang.ref.uid):
        began = None if recovery.active else resumed_at(recovery)
        is_news = began is not None and diagnosis.seen_at > began
        if (
            recovery.status.phase is not Phase.FAILED
            and not is_news
            and recovery.has_cause(diagnosis.name, diagnosis.finding)
        ):
            return recovery.metadata.name
    return None


def _due(diagnosis: Diagnosis, harm: Harm, now: datetime) -> Denied | None:
    """Denied while the gang still trains and may go on for now."""
    if harm.due is not None and harm.due <= now:
        return None
    if harm.due is None:
        return Denied(Reason.STILL_TRAINING, f"{harm.gang.ref} is not known to have stopped training")
    if diagnosis.settled:
        return Denied(
            Reason.STILL_TRAINING, f"{harm.gang.ref} trains on, and is moved {_later(diagnosis, harm)}"
        )
    return Denied(Reason.STILL_TRAINING, f"the verdict settles at {harm.due:%H:%M:%S}")


def _later(diagnosis: Diagnosis, harm: Harm) -> str:
    """When a gang is moved that trains on a degraded node, and why not before."""
    at = f"at {harm.due:%H:%M:%S} (checkpoint_grace_s)"
    if harm.awaited is Awaited.NEXT:
        return f"at its next checkpoint, at the latest {at}"
    if harm.awaited is Awaited.MOVED_BEFORE:
        return f"{at}, since it was moved off {diagnosis.node} for this fault before and came back"
    unseen = "no line of its log has shown so far that a checkpoint is complete"
    if saves_on_sigterm(harm.gang.annotations):
        return f"{at}, since {diagnosis.node} was degraded before the job came there, and {unseen}"
    return (
        f"{at}, since {unseen}. A job with the annotation {CHECKPOINT_ON_SIGTERM}: true is moved at once, "
        "and saves a checkpoint as it is stopped"
    )


# --- the writes -------------------------------------------------------------------------------------------


def _opened(opening: _Opening) -> tuple[Action, ...]:
    gang, name, spec = opening.gang, opening.name, opening.spec
    return (
        Create(
            what="open-recovery",
            resource=RECOVERIES,
            name=name,
            namespace=gang.ref.namespace,
            body=body(RECOVERIES, name, gang.ref.namespace, spec=spec),
        ),
        Emit(
            reason=EventReason.RECOVERY_PLANNED,
            message=f"{spec.summary}. Recovery {name}",
            regarding=about_gang(gang),
            key=name,
        ),
    )


def _told(running: Recovery, causes: list[Cause]) -> Patch:
    return Patch(
        what="tell-recovery",
        resource=RECOVERIES,
        name=running.metadata.name,
        namespace=running.metadata.namespace,
        uid=running.metadata.uid,
        version=running.metadata.resource_version,
        body={"spec": {"causes": [builtins(cause) for cause in causes]}},
    )


def _cause(diagnosis: Diagnosis, attempt: int) -> Cause:
    suspect = diagnosis.suspects[0].node if diagnosis.suspects else ""
    return Cause(
        incident=diagnosis.name,
        fault=diagnosis.fault,
        attempt=attempt,
        at=diagnosis.struck_at or diagnosis.detected_at,
        node=diagnosis.node or suspect,
        summary=diagnosis.summary,
        finding=diagnosis.finding,
        blame=diagnosis.blame,
        error=diagnosis.error[:63],
    )


def _bounded(causes: list[Cause], *, is_stopped: bool) -> list[Cause]:
    """Adds causes within the limit. A gang that is stopped already needs no more causes than fit. A gang that
    runs again is stopped by a new cause, which takes the place of the oldest one."""
    return causes[:CAUSES_MAX] if is_stopped else causes[-CAUSES_MAX:]


def _recovery_spec(world: World, diagnosis: Diagnosis, gang: Gang) -> RecoverySpec:
    pods = ranks(world, gang)
    lost = [e.pod for e in diagnosis.evidence if e.pod]
    cause = _cause(diagnosis, 1)
    return RecoverySpec(
        gang=gang.ref,
        number=_next_number(world, gang),
        incident=diagnosis.name,
        fault=diagnosis.fault,
        detected_at=diagnosis.detected_at,
        summary=diagnosis.summary,
        avoid_node=cause.node,
        causes=[cause],
        nodes=sorted({p.node for p in pods if p.node})[:4096],
        gpus=min(
            sum(p.accelerators for p in pods), gang.size * max((p.accelerators for p in pods), default=0)
        ),
        witnesses=witnesses(world, gang, lost, [diagnosis.node]),
    )


def _next_number(world: World, gang: Gang) -> int:
    """The number of the next Recovery. A person who deletes the last Recovery leaves its name in the job's
    mark. The next one needs another name, or it would take what the mark says for its own acts."""
    history = world.history(gang.ref.uid)
    number = history[-1].spec.number + 1 if history else 1
    is_marked = gang.mark is not None and gang.mark.recovery == recovery_name(gang.ref, number)
    return number + 1 if is_marked else number
