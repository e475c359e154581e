"""What a Recovery that is gone has left in its job: taken back, since nobody else will. Pure.

A person has deleted it while it ran, or it was old and the job's framework did not let go of the affinity
before. At once the checkpoint is taken back from which the ranks begin, and the job's mark notes that; a job
that stays stopped says so by an Event. The nodes that the start avoided follow as soon as the framework
accepts it.
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
"""The mark of a job that is not stopped, once its checkpoint is taken back."""


def left_behind(world: World, gangs: Iterable[Gang], now: datetime) -> Iterator[tuple[Action, ...]]:
    """A live read first: the cache of Recoveries may lag behind that of jobs."""
    for gang in gangs:
        mark = gang.mark
        if mark is None or _has_recovery(world, gang, mark) or not may_write(gang, world, now):
            continue
        refusal = world.refused.get(f"{gang.ref.namespace}/{gang.ref.name}")
        if refusal is not None and refusal.pause_s(now):
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
    """A ConfigMap that the API server refuses to change for good holds nothing up: the job is told anyway."""
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
    refusal = world.refused.get(f"{action.namespace}/{action.name}")
    return refusal is None or refusal.may_pass


def _lifted(gang: Gang, mark: Mark) -> tuple[Action, ...]:
    """The mark of a job that is left stopped stays until a person starts the job; what recipes ask of the
    nodes stays for good."""
    is_all = not (mark.avoided or mark.suspected) and (is_left_stopped(gang) or bool(mark.placed))
    return () if is_all else tuple(workload_of(gang).lift(gang))
