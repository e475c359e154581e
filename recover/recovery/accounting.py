"""Counts what a failure cost: lost steps and GPU-seconds. Pure."""

from __future__ import annotations

from datetime import datetime

from detectors.wire.training import LastSave, PodProgress
from recover.api import Recovery, RecoverySpec, Totals
from recover.diagnose.witnesses import reports_of
from recover.model import World

__all__ = ["last_save", "last_step", "lost_gpu_s", "lost_steps", "totals", "trained_until"]


def last_step(world: World, recovery: Recovery) -> int | None:
    """Returns the last step that a witness of the gang is known to have made before the stop. A number from
    only one line is not certainly a step, and a step that counts within an epoch cannot be compared."""
    steps = [
        p.last_step
        for p in reports_of(world, recovery.witnesses)
        if p.last_step is not None and p.first_step is not None and not p.step_of_epoch
    ]
    return max(steps, default=None)


def last_save(world: World, recovery: Recovery) -> tuple[PodProgress, LastSave] | None:
    """Returns the witness whose log reports the latest complete checkpoint, and that checkpoint. Only the
    newest instance of each container counts: earlier instances may have saved steps that were given up
    since."""
    by_age = sorted(reports_of(world, recovery.witnesses), key=lambda p: p.instance)
    newest = {(p.uid, p.container): p for p in by_age}
    saved = [(p, p.last_save) for p in newest.values() if p.last_save is not None]
    numbered = [found for found in saved if found[1].step is not None]
    return max(numbered, key=lambda found: found[1].step or 0, default=None)


_STEPS_MAX = 2**53
_GPU_S_MAX = 1e15
"""Limit of GPU-seconds. Totals are sums of what agents report, over all recoveries of a job, and the API
server takes no number beyond 2^63. A job whose totals have reached a limit is still recovered."""


def lost_steps(last: int | None, first_new: int) -> int | None:
    """Returns the number of steps that are made a second time: from the first new step to the last old
    step."""
    return None if last is None else min(_STEPS_MAX, max(0, last - first_new + 1))


def trained_until(world: World, recovery: Recovery) -> datetime:
    """Returns the time since which nothing new was made: the first evidence, or a witness' last step if the
    gang trained on after the evidence, for example at a fault that waits for the next checkpoint."""
    steps = [
        p.last_step_at
        for p in reports_of(world, recovery.witnesses)
        if p.last_step_at is not None and p.first_step is not None
    ]
    return max([recovery.spec.detected_at, *steps])


def lost_gpu_s(
    spec: RecoverySpec, since: datetime, resumed_at: datetime, steps: int | None, step_s: float | None
) -> float:
    """Returns the GPU-seconds from `since` to the first new step, plus those of the steps that are made
    twice."""
    waited = max(0.0, (resumed_at - since).total_seconds())
    repeated = max(0.0, (steps or 0) * (step_s or 0.0))
    return min(_GPU_S_MAX, round((waited + repeated) * spec.gpus, 3))


def totals(history: list[Recovery], recovery: Recovery, steps: int | None, gpu_s: float) -> Totals:
    """Returns the job's running totals including this recovery. The last earlier recovery with totals has the
    sum of the others."""
    before = Totals()
    for earlier in history:
        if earlier.spec.number < recovery.spec.number and earlier.status.totals is not None:
            before = earlier.status.totals
    return Totals(
        recoveries=before.recoveries + 1,
        lost_steps=min(_STEPS_MAX, max(0, before.lost_steps) + max(0, steps or 0)),
        lost_gpu_s=min(_GPU_S_MAX, round(max(0.0, before.lost_gpu_s) + gpu_s, 3)),
    )
