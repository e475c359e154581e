"""Wakes a framework's controller that has forgotten a job. Pure.

Kubernetes' Job controller does nothing for a job while it waits to see the pods that it has created or
deleted, and training-operator does the same. If the API server was killed in that moment, these controllers
wait in vain: for five minutes, and after that until the job changes. So a job that was stopped keeps its
pods, or a job that was started gets none. A new mark is such a change. Sources: ExpectationsTimeout in
kubernetes/kubernetes, pkg/controller/controller_utils.go, and in kubeflow/training-operator 1.9.4,
pkg/controller.v1/expectation/expectation.go. Observed only for Jobs, after etcd was killed
(tests/control_plane/test_mixed_faults.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from recover.api import Phase
from recover.api.reasons import EventReason
from recover.recovery.context import Context, Step
from recover.workloads.patches import marked

__all__ = ["woken"]

FORGOTTEN_S = 310.0
"""Time after which a job counts as forgotten, somewhat longer than the five minutes."""
_DOUBLED_MAX = 8
"""Number of times that the time until the next write doubles. A quota may keep a job without pods for
days."""


def woken(ctx: Context, step: Step) -> Step:
    """Returns the step with a write that wakes the framework's controller, or with the time of that write,
    if the framework has not done its part since the job was stopped or started. A new status is written
    first."""
    mark, since = ctx.gang.mark, _since(ctx)
    if step.status is not None or mark is None or since is None or not ctx.has(mark.did):
        return step
    times = mark.woken or 0
    due = since + timedelta(seconds=FORGOTTEN_S * 2 ** min(times, _DOUBLED_MAX))
    wait_s = max((due - ctx.now).total_seconds(), ctx.pause_s(ctx.refusal_of_job()))
    if wait_s > 0:
        sooner_s = wait_s if step.requeue_after_s is None else min(wait_s, step.requeue_after_s)
        return msgspec.structs.replace(step, requeue_after_s=sooner_s)
    again = marked(ctx.gang, "wake-framework", msgspec.structs.replace(mark, woken=times + 1))
    done = "ended" if ctx.has("stopped") else "created"
    message = (
        f"the framework's controller has not {done} all pods of {ctx.gang.ref} within {FORGOTTEN_S:g} s. "
        "Rekindle has changed its annotation on the job, so that this controller processes the job again"
    )
    told = ctx.event(EventReason.FRAMEWORK_WOKEN, message, key=f"-{times + 1}")
    return msgspec.structs.replace(step, writes=(*step.writes, again, told))


def _since(ctx: Context) -> datetime | None:
    """Returns when the API server accepted the stop or start, or a later time: a start that was refused, or
    that waits for the framework's own pause, has a later deadline. Returns None while a stop has not used up
    its time."""
    status = ctx.status
    if status.phase is Phase.RESUMING and status.deadline is not None:
        return status.deadline - timedelta(seconds=ctx.allowed_s(ctx.timing.resume_deadline_s))
    if status.phase is not Phase.BLOCKED:
        return None
    began = (one.at for one in status.phases if one.phase in (Phase.STOPPING, Phase.RESUMING))
    return max(began, default=None)
