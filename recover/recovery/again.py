"""Places a gang again whose ranks never all ran, when there is a better place: such a gang has not failed.
Pure.

Pods that wait keep the affinity of their start. If an excluded node is no longer broken, or a place proves to
be bad, the gang is stopped and started once more. Such a start counts only for a separate limit, and never
happens while a rank makes steps, or may make steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from recover.api import Phase, RecoveryStatus
from recover.diagnose.first_step import shows_no_step, steps_were_read
from recover.diagnose.ranks import losses
from recover.diagnose.starts import ranks
from recover.model import Pod, PodPhase
from recover.recovery import known_issues
from recover.recovery.avoid import Avoidance, avoidance, host_of
from recover.recovery.context import Context, Step, all_ran, next_attempt
from recover.triage.capacity import room
from recover.triage.offers import Supply

__all__ = ["fits_without", "has_run", "once_more", "pause_s", "placed_again", "started_at"]

AT_ONCE_S = 120.0
"""Time after its start within which a failed program cannot have waited for a peer: a timeout takes
minutes."""


def has_run(ctx: Context) -> bool:
    """Whether this attempt, which has started the gang, is evidence: all ranks ran at one time, or one rank
    failed at once by itself while no rank was waiting for room."""
    if all_ran(ctx):
        return True
    pods = ranks(ctx.world, ctx.gang)
    lost = losses(ctx.world, pods, ctx.now)
    began = started_at(ctx.status, ctx.status.attempt)
    is_at_once = bool(lost) and began is not None and lost[0].at - began < timedelta(seconds=AT_ONCE_S)
    return is_at_once and not any(pod.unschedulable for pod in pods)


def placed_again(ctx: Context, pods: list[Pod]) -> Step | None:
    """Returns the step that places a started gang again that waits for ranks, or None. `pods` are the living
    pods."""
    settings = ctx.settings.placement
    if any(_may_train(ctx, pod) for pod in pods) or len(ctx.status.uncounted) >= settings.again_starts_max:
        return None
    found = avoidance(ctx, ctx.status)
    why = _bad_place(found, pods) or _needless(ctx, found, pods)
    if not why:
        return None
    wait_s = pause_s(ctx, ctx.status.attempt)
    return Step(requeue_after_s=wait_s) if wait_s > 0 else once_more(ctx, why)


def once_more(ctx: Context, why: str) -> Step:
    """Returns the step that stops the gang and starts it again, in an attempt that does not count."""
    return Step(status=next_attempt(ctx, [], f"Rekindle places all ranks again: {why}", counts=False))


def pause_s(ctx: Context, attempt: int) -> float:
    """Returns the seconds until the gang that this attempt has started may be started again. The pause grows
    each time."""
    began, settings = started_at(ctx.status, attempt), ctx.settings.placement
    if began is None:
        return 0.0
    times = sum(1 for one in ctx.status.uncounted if one < attempt)
    wait_s = min(settings.again_s * 2 ** min(times, 20), settings.again_max_s)
    return (began + timedelta(seconds=wait_s) - ctx.now).total_seconds()


def started_at(status: RecoveryStatus, attempt: int) -> datetime | None:
    """Returns when this attempt started the gang; None if it has not."""
    begun = (
        one.at for one in reversed(status.phases) if one.phase is Phase.RESUMING and one.attempt == attempt
    )
    return next(begun, None)


def _may_train(ctx: Context, pod: Pod) -> bool:
    """Whether the pod makes steps, or runs and may make steps unread: an elastic training continues without
    some ranks. An agent publishes nothing about a log without steps, so the agent's coverage shows that the
    log is read."""
    progress = ctx.world.progress(pod)
    if progress is not None and progress.first_step is not None:
        return True
    if pod.phase is not PodPhase.RUNNING:
        return False
    return not (steps_were_read(ctx.world, ctx.gang) and shows_no_step(ctx.world, pod, ctx.now))


def _bad_place(found: Avoidance, pods: list[Pod]) -> str:
    bad = next((pod for pod in pods if pod.node in found.broken), None)
    return f"{bad.name} is on {bad.node}: {found.broken[bad.node]}" if bad is not None else ""


def _needless(ctx: Context, found: Avoidance, pods: list[Pod]) -> str:
    """Returns why a waiting rank need not wait: it is kept off a node for a reason that no longer exists, and
    without that all ranks would fit. Returns an empty string otherwise."""
    mark = ctx.gang.mark
    if mark is None or not any(pod.unschedulable for pod in pods):
        return ""
    required = {host_of(ctx.world, name) for name in found.required}
    ready = {host_of(ctx.world, node.name) for node in ctx.world.nodes.values() if node.ready}
    free = [host for host in mark.avoided if host not in required and host in ready]
    return f"{', '.join(free[:5])} can be used again" if free and fits_without(ctx, found.required) else ""


def fits_without(ctx: Context, without: Mapping[str, str]) -> bool:
    """Whether all ranks of the gang fit on other nodes than these."""
    placed, status = known_issues.placed(ctx), ctx.status
    return room(
        Supply(ctx.world),
        ctx.gang,
        ctx.now,
        without=without,
        placed=placed,
        priority=status.priority,
        tolerations=status.tolerations,
    ).fits
