"""Jobs that a recovery has stopped, and whose Recovery is gone: nothing starts them again. Pure.

A person has deleted it, and so a person decides: the job may be meant to stay as it is. Rekindle says so
once, as an Event on the job, and notes in the job's mark that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from recover.actions import Action, ConfirmGone, Emit
from recover.consent import OptIn, frozen_gang, in_force_for, opt_in
from recover.model import Gang, Mark, World
from recover.modes import Mode
from recover.objects import regarding
from recover.reasons import EventReason
from recover.resources import RECOVERIES
from recover.stories.commands import started_by
from recover.workloads.patches import marked

__all__ = ["is_left_stopped", "left_stopped", "words"]

_STOPPED, _TOLD = "stopped", "left-stopped"


def left_stopped(world: World, now: datetime) -> Iterator[tuple[Action, ...]]:
    """A live read first: the cache of Recoveries may lag behind that of jobs."""
    for gang in world.gangs.values():
        mark = gang.mark
        if mark is None or mark.did != _STOPPED or not is_left_stopped(gang):
            continue
        if _has_recovery(world, gang, mark) or not _may_write(world, gang, now):
            continue
        refusal = world.refused.get(f"{gang.ref.namespace}/{gang.ref.name}")
        if refusal is not None and refusal.pause_s(now):
            continue
        yield _told(gang, mark)


def is_left_stopped(gang: Gang) -> bool:
    """Its mark says so, if there is no such Recovery."""
    is_over = gang.deleting or gang.terminal is not None
    return gang.suspended and not is_over and gang.mark is not None and gang.mark.did in (_STOPPED, _TOLD)


def words(gang: Gang, mark: Mark) -> str:
    return (
        f"Rekindle has stopped {gang.ref}, and Recovery {mark.recovery}, which would start it again, was "
        "deleted. The job stays suspended until a person starts it"
    )


def _has_recovery(world: World, gang: Gang, mark: Mark) -> bool:
    space = gang.ref.namespace
    is_there = f"{space}/{mark.recovery}" in world.recoveries
    is_unread = world.is_unread(RECOVERIES, space, mark.recovery)
    return is_there or is_unread or world.active_recovery(gang.ref.uid) is not None


def _may_write(world: World, gang: Gang, now: datetime) -> bool:
    namespace = world.namespaces.get(gang.ref.namespace)
    is_ours = opt_in(gang, namespace) is OptIn.ENABLED and in_force_for(world, gang).mode is not Mode.OBSERVE
    return is_ours and not frozen_gang(gang, namespace, now)


def _told(gang: Gang, mark: Mark) -> tuple[Action, ...]:
    ref = gang.ref
    return (
        ConfirmGone(
            what="confirm-recovery-gone",
            resource=RECOVERIES,
            name=mark.recovery,
            namespace=ref.namespace,
        ),
        marked(gang, "mark-left-stopped", msgspec.structs.replace(mark, did=_TOLD)),
        Emit(
            reason=EventReason.LEFT_STOPPED,
            message=f"{words(gang, mark)}: {started_by(ref)}",
            regarding=regarding(ref.api_version, ref.kind, ref.name, ref.uid, ref.namespace),
            warning=True,
            key=mark.recovery,
        ),
    )
