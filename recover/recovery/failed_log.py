"""Keeps the log of the rank that was lost first in the Recovery, because its pod will be gone. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from detectors.wire.fitting import fitted
from detectors.wire.training import PodProgress
from recover.api import FailedLog, Phase
from recover.diagnose.witnesses import reports_of
from recover.recovery.context import Context, Step

__all__ = ["failed_log", "with_failed_log"]

_BEFORE_THE_START = frozenset({Phase.PLANNED, Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.BLOCKED})
"""Phases before the end of Choosing: until then choosing takes the log itself."""


def failed_log(ctx: Context) -> FailedLog | None:
    """Returns the first error and the end of the first witness' log: witnesses begin with the lost rank.
    Errors that a rank prints because of Rekindle's stop, as torchrun does, are no errors of the gang."""
    stops = [phase.at for phase in ctx.status.phases if phase.phase is Phase.STOPPING]
    for witness in ctx.recovery.witnesses:
        ended = max((one for one in reports_of(ctx.world, [witness]) if one.tail), key=_telling, default=None)
        if ended is not None:
            error = ended.first_error
            is_ours = error is not None and bool(stops) and error.at > stops[-1]
            return fitted(
                FailedLog,
                pod=witness.pod,
                node=witness.node,
                first_error=error.text if error is not None and not is_ours else "",
                tail=ended.tail,
            )
    return None


def _telling(progress: PodProgress) -> tuple[bool, bool, datetime, int]:
    """Returns the sort key by which the training's container is chosen among the containers of one pod, as
    far as their logs show it. A pod's containers end at one moment."""
    error, steps = progress.first_error is not None, progress.first_step is not None
    return steps, error, progress.at, len(progress.tail)


def with_failed_log(ctx: Context, step: Step) -> Step:
    """Returns the step with the log, if an agent reported the log only after the checkpoint was chosen. The
    next status that is written anyway takes the log."""
    status = step.status
    if status is None or status.failed_log is not None or status.phase in _BEFORE_THE_START:
        return step
    late = failed_log(ctx)
    return (
        step
        if late is None
        else msgspec.structs.replace(step, status=msgspec.structs.replace(status, failed_log=late))
    )
