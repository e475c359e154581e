"""Keeps how long a healthy gang may be silent, over a restart of the gang: the agents learn the pauses of a
training from its log, and every restart begins a new log. Pure.

The Recovery records the pace before the stop (triage/restarts.py), and the agents of the next start get it
(triage/nodehealths.py). A gang that was stopped because it made no steps gets twice the time at the same
step: it may be healthy and silent there, for example while it evaluates, and would be stopped there again and
again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detectors.wire.contract import Fault
from detectors.wire.training import Edge, Pace, PodProgress
from recover.api import Recovery
from recover.model import Pod, World

__all__ = ["known_pace", "pace_before_stop"]


def pace_before_stop(world: World, pods: Collection[Pod], faults: Collection[Fault]) -> Pace | None:
    """Returns the pace that the agents report about these ranks; None if they report none. `faults` are the
    faults for which the gang is stopped."""
    told = [progress for pod in pods if (progress := world.progress(pod)) is not None]
    pauses = [one.longest_pause_s for one in told if one.longest_pause_s is not None]
    stalls = [one for one in told if one.edge is Edge.STALLED] if Fault.HANG in faults else []
    silent = [silent_s for one in stalls if (silent_s := _silent_s(one)) is not None]
    if not pauses and not silent:
        return None
    return Pace(
        longest_pause_s=max(pauses, default=None),
        hung_s=max(silent, default=None),
        hung_step=_step(stalls) if silent else None,
    )


def known_pace(history: Sequence[Recovery]) -> Pace | None:
    """Returns the pace of the gang as its recoveries, oldest first, have recorded it: the longest pause, and
    the last stop because of a hang."""
    paces = [recovery.spec.pace for recovery in history if recovery.spec.pace is not None]
    if not paces:
        return None
    hung = next((pace for pace in reversed(paces) if pace.hung_s is not None), Pace())
    pauses = [pace.longest_pause_s for pace in paces if pace.longest_pause_s is not None]
    return Pace(longest_pause_s=max(pauses, default=None), hung_s=hung.hung_s, hung_step=hung.hung_step)


def _silent_s(stalled: PodProgress) -> float | None:
    """Returns the silence before the stall. An older agent does not report it."""
    if stalled.silent_s is not None or stalled.last_step_at is None:
        return stalled.silent_s
    return max(0.0, (stalled.at - stalled.last_step_at).total_seconds())


def _step(stalls: Sequence[PodProgress]) -> int | None:
    """Returns the last step of these ranks; None if steps of a rank begin again with each epoch."""
    if any(one.step_of_epoch for one in stalls):
        return None
    return max((one.last_step for one in stalls if one.last_step is not None), default=None)
