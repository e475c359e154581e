"""The pace of a container's steps, and when their absence is a stall. Pure; folds/pods.py makes edges of it.

step_track.py says which number is the step. The limit follows the job's own pace: the median of its last
steps, the usual pause between two lines, the longest pause that it has made, and more while it writes a
checkpoint, or where its first one is likely due."""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

import msgspec

from detectors.rules.step_track import Track

__all__ = [
    "Progress",
    "began",
    "clock_set",
    "heard",
    "is_milestone",
    "median_step_s",
    "observe",
    "pausing",
    "stall_limit_s",
]

_DURATIONS_MAX = 32
_TOGETHER_S = 0.005
_LONGEST_FACTOR = 1.5
_MILESTONE_FACTOR = 3.0
_INTERVAL_MIN = 50
"""Fewer steps take so long each that ten of them are a longer limit."""
_INTERVAL_LINES_MIN = 10
"""Where fewer lines tell of so many steps, most of them do."""
_INTERVALS = frozenset({12, 15, 25, 75})
"""Beside numbers of one digit, what an interval of checkpoints is once its zeros are left out."""
_PARTS_MIN = 4
"""The time before the first of them is no pause between two."""
_PARTS_FACTOR = 4.0
"""A step may come to take longer, and the next part of a line then takes as much longer to fill."""
_LONGEST_S_MAX = 3600.0
"""A longer pause was no habit of the job: its storage was away, or it had hung."""


class Progress(msgspec.Struct, frozen=True):
    """Steps of one container instance. `durations_s` are the last times per step, `pauses_s` those between
    two lines that tell of one, newest last; the first pause is the time before the first such line."""

    first_step: int | None = None
    first_step_at: datetime | None = None
    last_step: int | None = None
    last_step_at: datetime | None = None
    of_epoch: bool = False
    """The numbers begin again with each epoch."""
    stride: int = 1
    """By how much the last number was higher than the one before."""
    total: int | None = None
    """How many steps the epoch or the run has, where the log tells."""
    alive_at: datetime | None = None
    """The last sign that the training goes on: a step, another number of it, or a checkpoint that is
    written."""
    pausing_at: datetime | None = None
    """Since the last step it has told of a checkpoint or an evaluation, first at that time."""
    durations_s: tuple[float, ...] = ()
    pauses_s: tuple[float, ...] = ()
    longest_s: float = 0.0
    """The longest pause between two lines."""
    heard_at: datetime | None = None
    """When the last pause ended, by what we have read ourselves; at first, when the container began."""
    heard_step: int | None = None
    """The step that ended it."""


def observe(progress: Progress, track: Track, at: datetime, *, is_new: bool = False) -> Progress:
    """The leading track says the step. One that is not the last one again moves the progress; going back
    counts too (a resume in place). `is_new`: another track led before, which counted something else."""
    if track.last == progress.last_step:
        return progress
    if is_new:
        progress = msgspec.structs.replace(progress, first_step=None, heard_step=None, durations_s=())
    if progress.first_step is None:
        progress = _heard(progress, track.first, track.first_at)
        progress = msgspec.structs.replace(
            progress, first_step=track.first, first_step_at=track.first_at, of_epoch=track.of_epoch
        )
    progress = _heard(progress, track.last, at)
    return msgspec.structs.replace(
        progress,
        last_step=track.last,
        last_step_at=at,
        stride=track.stride or progress.stride,
        total=track.total,
        alive_at=at,
        pausing_at=None,
    )


def began(progress: Progress, at: datetime) -> Progress:
    """The container's first line, whatever it says: the pause before its first step begins."""
    return progress if progress.heard_at is not None else msgspec.structs.replace(progress, heard_at=at)


def clock_set(progress: Progress, by: timedelta, *, is_fresh: bool) -> Progress:
    """The pause that goes on is no longer or shorter for it. One that ended just now was measured by two
    clocks."""
    if is_fresh:
        return msgspec.structs.replace(progress, longest_s=0.0)
    heard_at = progress.heard_at + by if progress.heard_at is not None else None
    return msgspec.structs.replace(progress, heard_at=heard_at)


def heard(progress: Progress, at: datetime) -> Progress:
    """A sign of life that is no new step."""
    return msgspec.structs.replace(progress, alive_at=at)


def pausing(progress: Progress, at: datetime, limit_s: float) -> Progress:
    """It tells of a checkpoint or an evaluation. One that does so for longer than `limit_s` shows no life by
    that."""
    since = progress.pausing_at if progress.pausing_at is not None else at
    if (at - since).total_seconds() >= limit_s:
        return progress
    return msgspec.structs.replace(progress, alive_at=at, pausing_at=since)


def _heard(progress: Progress, step: int, at: datetime) -> Progress:
    """What came together counts once: a program that buffers its output prints a hundred steps at a time."""
    last_at = progress.last_step_at
    if last_at is not None and 0 <= (at - last_at).total_seconds() < _TOGETHER_S:
        return progress
    pauses_s, durations_s = progress.pauses_s, progress.durations_s
    pause_s = (at - progress.heard_at).total_seconds() if progress.heard_at is not None else -1.0
    before, longest_s = progress.heard_step, progress.longest_s
    if pause_s >= 0:
        pauses_s = (*pauses_s[1 - _DURATIONS_MAX :], pause_s)
        if before is not None:
            longest_s = max(longest_s, min(pause_s, _LONGEST_S_MAX))
            if step > before:
                durations_s = (*durations_s[1 - _DURATIONS_MAX :], pause_s / (step - before))
    return msgspec.structs.replace(
        progress,
        pauses_s=pauses_s,
        durations_s=durations_s,
        longest_s=longest_s,
        heard_at=at,
        heard_step=step,
    )


def median_step_s(progress: Progress) -> float | None:
    return median(progress.durations_s) if progress.durations_s else None


def stall_limit_s(
    progress: Progress,
    *,
    stall_min_s: float,
    stall_factor: float,
    announced_s: float,
    hang_timeout_s: float | None,
    goes_on: bool = False,
    in_parts: bool = False,
) -> float | None:
    """How long no step may come before the container counts as stalled; None where the job wants no limit,
    or none can be known.

    Many steps may go by between two lines that tell of one: so long no line is due. `goes_on`: the steps
    stand in a line that does not end, of which the runtime tells in large parts. `in_parts`: their lines are
    held back, in this way or until they end. The job's own limit was not meant for the silence between them.
    """
    known = len(progress.pauses_s) >= _PARTS_MIN
    if hang_timeout_s is not None and hang_timeout_s <= 0:
        return None
    if hang_timeout_s is not None:
        due_s = max(_LONGEST_FACTOR * progress.longest_s, 0.0 if known else stall_min_s)
        return max(hang_timeout_s, due_s) if in_parts else hang_timeout_s
    if goes_on and not known:
        return None
    step_s = median_step_s(progress) or 0.0
    pause_s = median(progress.pauses_s) if progress.pauses_s else 0.0
    limit_s = max(stall_min_s, stall_factor * step_s) + max(0.0, pause_s - step_s)
    limit_s = max(limit_s, _LONGEST_FACTOR * progress.longest_s)
    if goes_on:
        limit_s = max(limit_s, stall_min_s + _PARTS_FACTOR * pause_s)
    if is_milestone(progress):
        limit_s = max(limit_s, _MILESTONE_FACTOR * stall_min_s)
    return max(limit_s, announced_s) if progress.pausing_at is not None else limit_s


def is_milestone(progress: Progress) -> bool:
    """Whether a checkpoint or an evaluation that nothing announces is likely due where it stands: at the end
    of an epoch or of the run, or where as many steps are made as people choose for the interval, counted
    from 0 or from where it began. Once the first one has gone by, its pause is known.

    >>> [is_milestone(Progress(first_step=1, last_step=step)) for step in (999, 1000, 1234, 2500)]
    [True, True, False, True]
    """
    if progress.first_step is None or progress.last_step is None:
        return False
    last, stride = progress.last_step, progress.stride
    if progress.total is not None and last + stride > progress.total:
        return True
    begin = progress.first_step - stride
    least = max(_INTERVAL_MIN, _INTERVAL_LINES_MIN * stride)
    made = (last, last + stride, last - begin, last - begin + stride)
    return any(steps >= least and _is_interval(steps) for steps in made)


def _is_interval(steps: int) -> bool:
    """500, 1000, 2500 or 1024, and neither 510 nor 1234. The next line may tell of the step only after it."""
    is_power_of_two = steps & (steps - 1) == 0
    while steps % 10 == 0:
        steps //= 10
    return is_power_of_two or steps < 10 or steps in _INTERVALS
