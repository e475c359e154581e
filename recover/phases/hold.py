"""A stopped gang that cannot fit is not started: it waits, says what is missing, and starts by itself. Pure.

Ranks that did start would hold accelerators and exit at their rendezvous' timeout, which looks like a failure
of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from recover.api import Phase
from recover.capacity import RESERVED_S, Room, room
from recover.phases import known
from recover.phases.context import Context, Step, moved
from recover.reasons import EventReason, Reason

__all__ = ["without_room"]


def without_room(ctx: Context, without: Mapping[str, str]) -> Step | None:
    """The wait for places, off the nodes that it is kept `without`; None once all ranks fit."""
    gang, status = ctx.gang, ctx.status
    waits = (status.phase, status.reason) == (Phase.BLOCKED, Reason.NO_CAPACITY)
    found = Room()
    if ctx.settings.placement.hold_without_room:
        placed, priority = known.placed(ctx), status.priority
        found = room(ctx.world, gang, ctx.now, without=without, placed=placed, priority=priority)
    if found.fits and not waits:
        return None
    if found.fits:
        message = f"{gang.ref} fits again: starting all {gang.size} ranks"
        within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
        return Step(status=moved(ctx, Phase.RESUMING, message, within_s=within_s))
    head = f"{gang.ref} is not started yet: {found.words}"[:900]
    look_again_s = RESERVED_S if found.reserved else None
    if waits and status.message.startswith(head):
        return Step(look_again_s=look_again_s)
    in_use = f"; {found.in_use} other node(s) are in use" if found.in_use else ""
    message = f"{head}{in_use}. It starts by itself as soon as it fits"
    if waits:
        return Step(status=msgspec.structs.replace(status, message=message))
    return Step(
        status=moved(ctx, Phase.BLOCKED, message, reason=Reason.NO_CAPACITY),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),),
    )
