"""Reports removals that the API server refuses, for example because of an admission policy, so that people
read of them. Pure.

The stop and the start of a gang report refusals by themselves (stop.py, resume.py). `unless_refused` reports
refused removals of old pods, and of a job that is to be created again.
"""

from __future__ import annotations

import msgspec

from detectors.wire.fitting import refitted
from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.model.actions import Delete, Patch
from recover.model.world import REFUSED_AGAIN_S
from recover.recovery.context import Context, Step
from recover.workloads.patches import DELETE_JOB

__all__ = ["unless_refused"]


def unless_refused(ctx: Context, step: Step) -> Step:
    """Returns the step. If one of its removals was refused a moment ago, returns first the report of the
    refusal, then a pause."""
    removals = [a for a in step.writes if isinstance(a, Delete | Patch) and _removes(a)]
    refusal = ctx.refusal(*((action.resource, action.name) for action in removals)) if removals else None
    if refusal is None or step.status is not None:
        return step
    if not ctx.is_reported(refusal):
        what = ", ".join(f"{action.resource.kind} {action.name}" for action in removals[:3])
        message = (
            f"the API server refuses to remove the leftovers of {ctx.gang.ref} ({what}), and "
            f"Rekindle tries again every {refusal.again_s:g} s: {ctx.words_of(refusal)}"
        )
        waits = ctx.status.phase is Phase.BLOCKED  # the reason says for what it waits
        reason = ctx.status.reason if waits else Reason.WRITE_REFUSED
        status = refitted(ctx.status, reason=reason, message=message)
        return Step(status=status, writes=(ctx.event(EventReason.RECOVERY_BLOCKED, message, warning=True),))
    if pause_s := ctx.pause_s(refusal):
        return Step(requeue_after_s=pause_s)
    return msgspec.structs.replace(step, requeue_after_s=REFUSED_AGAIN_S)


def _removes(action: Delete | Patch) -> bool:
    return action.what in ("fail-pod", "free-pod", DELETE_JOB)
