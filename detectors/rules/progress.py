"""Computes the pace of a container's steps, and when their absence is a stall. Pure; folds/pods.py makes
edges from it.

step_track.py finds out which number is the step. The limit follows the job's own pace: the median of its last
steps, the usual pause between two lines, and the longest pause that it has made. The limit is longer while
the job writes a checkpoint or evaluates, or if a checkpoint or an evaluation is probably due.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

import msgspec

from detectors.rules.step_track import Track
from detectors.wire.training import Pace, PodSettings

__all__ = [
    "Progress",
    "alive",
    "began",
    "bounded_s",
    "clock_set",
    "is_milestone",
    "makes_limit_longer",
    "median_step_s",
    "observe",
    "pausing",
    "read_again",
    "stall_limit_s",
]

_DURATIONS_MAX = 32
_TOGETHER_S = 0.005
_LONGEST_FACTOR = 1.5
_MILESTONE_FACTOR = 3.0
_HUNG_FACTOR = 2.0
_HUNG_S_MAX = 1800.0
"""Greatest silence before a stop that makes the next limit longer, in seconds. The limit is then an hour."""
_SOON_S = 3600.0
"""Time after the first step within which a job with steps of epochs is where it hung. Its steps cannot be
compared with those of an earlier start."""
_INTERVAL_MIN = 50
"""Least interval of checkpoints in steps. With fewer steps, each takes so long that ten of them are a longer
limit."""
_INTERVAL_LINES_MIN = 10
"""Least number of lines within an interval. With fewer lines, most lines would be at an interval."""
_FIRST_STEPS = frozenset({5, 10, 20})
"""Numbers of steps of which many scripts print each one (`step <= 10 or step % 200 == 0`), before they print
only each hundredth or so."""
_INTERVALS = frozenset({12, 15, 25, 75})
"""Intervals of checkpoints without their zeros, in addition to numbers of one digit."""
_PARTS_MIN = 4
"""Number of pauses from which the usual pause between two lines is known. One of them is the time before the
first line."""
_PARTS_FACTOR = 4.0
"""Factor for a line that is written in parts: steps may become slower, and the next part of a line then takes
as much longer to fill."""
_LONGEST_S_MAX = 3600.0
"""Greatest value of the longest pause, in seconds. A longer pause was no habit of the job: its storage was
away, or it had hung."""


class Progress(msgspec.Struct, frozen=True):
    """Steps of one container instance. `durations_s` are the last times per step, `pauses_s` those between
    two lines that contain a step, newest last; the first pause is the time before the first such line."""

    first_step: int | None = None
    first_step_at: datetime | None = None
    last_step: int | None = None
    last_step_at: datetime | None = None
    of_epoch: bool = False
    """Whether the numbers begin again with each epoch."""
    stride: int = 1
    """Amount by which the last number was higher than the one before."""
    total: int | None = None
    """Number of steps of the epoch or the run, if the log shows it."""
    alive_at: datetime | None = None
    """Time of the last sign that the training continues: a step, another line with a number, or a checkpoint
    that is written."""
    pausing_at: datetime | None = None
    """Time of the first report of a checkpoint or an evaluation since the last step; None if there was
    none."""
    durations_s: tuple[float, ...] = ()
    pauses_s: tuple[float, ...] = ()
    longest_s: float = 0.0
    """The longest pause between two lines."""
    heard_at: datetime | None = None
    """End of the last pause among lines that this run of the agent has read; at first, the time of the first
    line that it has read."""
    heard_step: int | None = None
    """The step that ended that pause."""


def observe(progress: Progress, track: Track, at: datetime, *, is_new: bool = False) -> Progress:
    """Takes the leading track, which has the step. A step that differs from the last one moves the progress,
    and going back counts, too (a resume in place). `is_new`: another track led before, which counted
    something else."""
    if track.last == progress.last_step:
        return progress
    if is_new:
        progress = msgspec.structs.replace(progress, first_step=None, heard_step=None, durations_s=())
    if progress.first_step is None:
        progress = _with_step(progress, track.first, track.first_at)
        progress = msgspec.structs.replace(
            progress, first_step=track.first, first_step_at=track.first_at, of_epoch=track.of_epoch
        )
    progress = _with_step(progress, track.last, at)
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
    """Takes the container's first line, whatever its text: the pause before its first step begins."""
    return progress if progress.heard_at is not None else msgspec.structs.replace(progress, heard_at=at)


def clock_set(progress: Progress, by: timedelta, *, is_fresh: bool) -> Progress:
    """Adjusts to a step of the clock: the present pause gets neither longer nor shorter. A pause that ended
    just now was measured by two clocks, so the longest pause is forgotten."""
    if is_fresh:
        return msgspec.structs.replace(progress, longest_s=0.0)
    heard_at = progress.heard_at + by if progress.heard_at is not None else None
    return msgspec.structs.replace(progress, heard_at=heard_at)


def alive(progress: Progress, at: datetime) -> Progress:
    """Records a sign of progress that is no new step."""
    return msgspec.structs.replace(progress, alive_at=at)


def pausing(progress: Progress, at: datetime, limit_s: float) -> Progress:
    """Records a line about a checkpoint or an evaluation. After `limit_s` of such lines without a step, they
    are no longer a sign of progress."""
    since = progress.pausing_at if progress.pausing_at is not None else at
    if (at - since).total_seconds() >= limit_s:
        return progress
    return msgspec.structs.replace(progress, alive_at=at, pausing_at=since)


def read_again(progress: Progress, track: Track | None, at: datetime) -> Progress:
    """Takes a line that an earlier run of the agent has read: only the pace of the steps is learned again."""
    if track is None or track.last == progress.heard_step or _are_together(progress.heard_at, at):
        return progress
    return _with_pause(progress, track.last, at)


def _with_step(progress: Progress, step: int, at: datetime) -> Progress:
    """Counts lines that came together as one: a program that buffers its output prints a hundred steps at a
    time."""
    return progress if _are_together(progress.last_step_at, at) else _with_pause(progress, step, at)


def _are_together(before: datetime | None, at: datetime) -> bool:
    return before is not None and 0 <= (at - before).total_seconds() < _TOGETHER_S


def _with_pause(progress: Progress, step: int, at: datetime) -> Progress:
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
    job: PodSettings,
    goes_on: bool = False,
    in_parts: bool = False,
) -> float | None:
    """Returns the time in seconds without a step after which the container counts as stalled; None if the job
    wants no limit, or if none can be computed.

    Many steps may pass between two lines that contain one, and during that time no line is due. `goes_on`:
    the steps are in a line that does not end, which the runtime writes in large parts. `in_parts`: lines with
    steps are held back, in this way or until they end. The job's own limit (`job.hang_timeout_s`) was not
    meant for the silence between such lines, so a longer silence may be due.
    """
    known, hang_timeout_s = len(progress.pauses_s) >= _PARTS_MIN, job.hang_timeout_s
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
    pace = job.pace or Pace()
    longest_s = max(progress.longest_s, bounded_s(pace.longest_pause_s))
    limit_s = max(limit_s, _LONGEST_FACTOR * longest_s)
    if pace.hung_s is not None and _is_where_it_hung(progress, pace.hung_step):
        limit_s = max(limit_s, _HUNG_FACTOR * min(pace.hung_s, _HUNG_S_MAX))
    if goes_on:
        limit_s = max(limit_s, stall_min_s + _PARTS_FACTOR * pause_s)
    if is_milestone(progress):
        limit_s = max(limit_s, _MILESTONE_FACTOR * stall_min_s)
    return max(limit_s, announced_s) if progress.pausing_at is not None else limit_s


def bounded_s(pause_s: float | None) -> float:
    """Returns the longest pause as an earlier run of the agent, or the controller, reports it: an hour at
    most."""
    return min(pause_s or 0.0, _LONGEST_S_MAX)


def makes_limit_longer(longest_s: float, stall_min_s: float) -> bool:
    """Whether this longest pause makes the limit longer than the shortest limit."""
    return _LONGEST_FACTOR * longest_s > stall_min_s


def _is_where_it_hung(progress: Progress, hung_step: int | None) -> bool:
    """Whether the training has not passed the step at which its last start was stopped. A healthy job that is
    silent there for long, for example because it evaluates, would be stopped there again and again."""
    if progress.last_step is None or progress.first_step_at is None or progress.last_step_at is None:
        return True
    if hung_step is None:
        return (progress.last_step_at - progress.first_step_at).total_seconds() < _SOON_S
    return progress.last_step <= hung_step + progress.stride


def is_milestone(progress: Progress) -> bool:
    """Whether a longer pause is probably due at this step. An unannounced checkpoint or evaluation may begin
    at the end of an epoch or of the run, or after a number of steps that people choose as the interval,
    counted from 0 or from the first step. After the first five, ten or twenty steps the log may begin
    to leave out steps. Once the first such pause has passed, its length is known.

    >>> [is_milestone(Progress(first_step=1, last_step=step)) for step in (7, 10, 999, 1000, 1234, 2500)]
    [False, True, True, True, False, True]
    """
    if progress.first_step is None or progress.last_step is None:
        return False
    last, stride = progress.last_step, progress.stride
    if progress.total is not None and last + stride > progress.total:
        return True
    begin = progress.first_step - stride
    least = max(_INTERVAL_MIN, _INTERVAL_LINES_MIN * stride)
    if stride == 1 and not _FIRST_STEPS.isdisjoint((last, last - begin)):
        return True
    made = (last, last + stride, last - begin, last - begin + stride)
    return any(steps >= least and _is_interval(steps) for steps in made)


def _is_interval(steps: int) -> bool:
    """Whether the number is a usual interval: 500, 1000, 2500 or 1024, but neither 510 nor 1234."""
    is_power_of_two = steps & (steps - 1) == 0
    while steps % 10 == 0:
        steps //= 10
    return is_power_of_two or steps < 10 or steps in _INTERVALS
