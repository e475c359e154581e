"""Places a gang again whose ranks never all ran, when there is a better place: such a gang has not failed.
Pure.

Pods that wait keep the affinity of their start. If an excluded node is no longer broken, or a place proves to
be bad, the gang is stopped and started once more. Such a start counts only for a separate limit, and never
happens while a rank makes steps, or may make steps. The exception is a gang that the scheduler has put on a
node that was already cordoned: it is started once more although it makes steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import datetime, timedelta

from recover.api import Phase, RecoveryStatus
from recover.diagnose.first_step import shows_no_step, steps_were_read
from recover.diagnose.ranks import losses
from recover.diagnose.starts import ranks
from recover.diagnose.what_counts import proven
from recover.model import Node, Pod, PodPhase
from recover.recovery import known_issues
from recover.recovery.avoid import Avoidance, avoidance, closed_to, host_of
from recover.recovery.context import Context, Step, all_ran, next_attempt
from recover.triage.capacity import room
from recover.triage.offers import Supply

__all__ = ["has_run", "pause_s", "placed_again", "placed_past_cordon"]

AT_ONCE_S = 120.0
"""Time after its start within which a failed program cannot have waited for a peer: a timeout takes
minutes."""


PAST_CORDON_MAX = 5
"""Number of starts in a row after which a rank on a cordoned node stays there. With the growing pauses they
take five minutes, and the scheduler has long seen the cordon: the template itself puts the rank there, for
example by `nodeName`."""


def has_run(ctx: Context) -> bool:
    """Whether this attempt, which has started the gang, is evidence: all ranks ran at one time, or one rank
    failed at once by itself while no rank was waiting for room."""
    if all_ran(ctx):
        return True
    pods = ranks(ctx.world, ctx.gang)
    lost = losses(ctx.world, pods, ctx.now)
    began = _started_at(ctx.status, ctx.status.attempt)
    is_at_once = bool(lost) and began is not None and lost[0].at - began < timedelta(seconds=AT_ONCE_S)
    return is_at_once and not any(pod.unschedulable for pod in pods)


def placed_again(ctx: Context, pods: list[Pod]) -> Step | None:
    """Returns the step that places a started gang again that waits for ranks, or None. `pods` are the living
    pods."""
    if any(_may_train(ctx, pod) for pod in pods) or _is_last_start(ctx):
        return None
    found = avoidance(ctx, ctx.status)
    why = _bad_place(found, pods) or _needless(ctx, found, pods)
    return _once_more(ctx, why) if why else None


def placed_past_cordon(ctx: Context) -> Step | None:
    """Returns the step that places a started gang again if one of its new ranks has come to a node that
    Rekindle had closed before, for a fault that is still open. A scheduler whose watch of the nodes lags does
    this, for example after an outage of the API server. The gang would have to leave the node later anyway,
    with more steps to lose. Returns None if no rank is on such a node, and while the mode is paused."""
    if not ctx.has("resumed") or ctx.gang.suspended or ctx.world.modes.paused is not None:
        return None
    late = [pod for pod in ctx.living() if _was_closed_before(ctx.world.nodes.get(pod.node), pod)]
    if not late or _is_last_start(ctx) or _in_a_row(ctx.status) >= PAST_CORDON_MAX:
        return None
    closed, broken = closed_to(ctx.world, ctx.gang), proven(ctx.world, ctx.now)
    bad = next((pod for pod in late if pod.node in closed and pod.node in broken), None)
    if bad is None:
        return None
    name, code = bad.node, broken[bad.node]
    return _once_more(ctx, f"the scheduler put {bad.name} on {name}, which was already cordoned for {code}")


def _was_closed_before(node: Node | None, pod: Pod) -> bool:
    """Whether our quarantine of the node is older than the pod. The API server dates a creation in whole
    seconds, and a fast gang starts again within one."""
    if node is None or node.quarantine is None or pod.created is None:
        return False
    return pod.created >= node.quarantine.at.replace(microsecond=0)


def _in_a_row(status: RecoveryStatus) -> int:
    """Returns how many attempts right before this one do not count."""
    before = itertools.takewhile(status.uncounted.__contains__, range(status.attempt - 1, 0, -1))
    return sum(1 for _ in before)


def _is_last_start(ctx: Context) -> bool:
    return len(ctx.status.uncounted) >= ctx.settings.placement.again_starts_max


def _once_more(ctx: Context, why: str) -> Step:
    wait_s = pause_s(ctx, ctx.status.attempt)
    if wait_s > 0:
        return Step(requeue_after_s=wait_s)
    return Step(status=next_attempt(ctx, [], f"Rekindle places all ranks again: {why}", counts=False))


def pause_s(ctx: Context, attempt: int) -> float:
    """Returns the seconds until the gang that this attempt has started may be started again. The pause grows
    each time."""
    began, settings = _started_at(ctx.status, attempt), ctx.settings.placement
    if began is None:
        return 0.0
    times = sum(1 for one in ctx.status.uncounted if one < attempt)
    wait_s = min(settings.again_s * 2 ** min(times, 20), settings.again_max_s)
    return (began + timedelta(seconds=wait_s) - ctx.now).total_seconds()


def _started_at(status: RecoveryStatus, attempt: int) -> datetime | None:
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
    return f"{', '.join(free[:5])} can be used again" if free and _fits(ctx, found.required) else ""


def _fits(ctx: Context, without: Mapping[str, str]) -> bool:
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
