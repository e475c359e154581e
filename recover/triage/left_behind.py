"""Takes back what a Recovery that no longer exists has left in its job, since no other part does. Pure.

A person has deleted the Recovery while it ran, or the Recovery expired before the job's framework accepted
the removal of the affinity. Rekindle at once takes back the checkpoint from which the ranks begin, and
notes that in the job's mark. If the job stays stopped, an Event reports it. The affinity that avoids nodes
follows as soon as the framework accepts its removal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from recover.api.reasons import EventReason
from recover.k8s.bodies import regarding
from recover.k8s.kinds import RECOVERIES
from recover.model import Gang, Mark, World
from recover.model.actions import Action, ConfirmGone, Emit, Ensure
from recover.model.left_stopped import TOLD, is_left_stopped, words
from recover.policy.consent import may_write
from recover.workloads import started_by, workload_of
from recover.workloads.patches import marked
from recover.workloads.resume_variables import without_checkpoint

__all__ = ["left_behind"]

_LEFT = "left"
"""Mark of a job that is not stopped, after its checkpoint was taken back."""


def left_behind(world: World, gangs: Iterable[Gang], now: datetime) -> Iterator[tuple[Action, ...]]:
    """Yields the writes for each job, each behind a live read of the Recovery, because the cache of
    Recoveries may lag behind the cache of jobs."""
    for gang in gangs:
        mark = gang.mark
        if mark is None or _has_recovery(world, gang, mark) or not may_write(gang, world, now):
            continue
        refusal = world.refusal(gang.resource, gang.ref.name, gang.ref.namespace)
        if refusal is not None and refusal.left_s(now):
            continue
        acts = _lifted(gang, mark) if mark.did in (TOLD, _LEFT) else _told(world, gang, mark)
        if acts:
            yield (_confirmed(gang, mark), *acts)


def _has_recovery(world: World, gang: Gang, mark: Mark) -> bool:
    space = gang.ref.namespace
    is_there = f"{space}/{mark.recovery}" in world.recoveries
    is_unread = world.is_unread(RECOVERIES, space, mark.recovery)
    return is_there or is_unread or world.active_recovery(gang.ref.uid) is not None


def _confirmed(gang: Gang, mark: Mark) -> ConfirmGone:
    return ConfirmGone(
        what="confirm-recovery-gone",
        resource=RECOVERIES,
        name=mark.recovery,
        namespace=gang.ref.namespace,
    )


def _told(world: World, gang: Gang, mark: Mark) -> tuple[Action, ...]:
    """Returns the writes that take back the checkpoint, mark the job, and report a job that stays stopped. A
    ConfigMap that the API server permanently refuses to change does not hold up the other writes."""
    ref, is_stopped = gang.ref, is_left_stopped(gang)
    undone = tuple(a for a in without_checkpoint(ref) if _may_pass(world, a))
    did = TOLD if is_stopped else _LEFT
    noted = marked(gang, f"mark-{did}", msgspec.structs.replace(mark, did=did))
    if not is_stopped:
        return (*undone, noted)
    event = Emit(
        reason=EventReason.LEFT_STOPPED,
        message=f"{words(gang, mark)}: {started_by(ref)}",
        regarding=regarding(ref.api_version, ref.kind, ref.name, ref.uid, ref.namespace),
        warning=True,
        key=mark.recovery,
    )
    return (*undone, noted, event)


def _may_pass(world: World, action: Ensure) -> bool:
    refusal = world.refusal(action.resource, action.name, action.namespace)
    return refusal is None or refusal.may_pass


def _lifted(gang: Gang, mark: Mark) -> tuple[Action, ...]:
    """Returns the writes that remove the affinity from the job. The mark of a job that is left stopped stays
    until a person starts the job. The requirements of recipes on the nodes stay permanently."""
    is_all = not (mark.avoided or mark.suspected) and (is_left_stopped(gang) or bool(mark.placed))
    return () if is_all else tuple(workload_of(gang).lift(gang))
