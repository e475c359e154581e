"""Places a gang again that a late scheduler has put on a node which was already quarantined. Pure.

After an outage of the API server, the scheduler's watch of the nodes may lag, and the affinity of a start
leaves out the nodes that Rekindle has cordoned. The gang has only just started, so it loses little. It is
stopped only for what would also stop a gang that trains: a fatal fault that may affect one of its ranks, with
the job's consent, without a hold, a pause or a brake, and if all ranks fit elsewhere. Otherwise it stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

from detectors.wire.contract import Finding, Severity
from recover.api import Phase, RecoveryStatus
from recover.diagnose.holders import affecting, holders_on
from recover.diagnose.ranks import losses
from recover.diagnose.starts import ranks
from recover.diagnose.what_counts import proofs
from recover.model import Pod
from recover.recovery.again import fits_without, once_more, started_at
from recover.recovery.avoid import avoidance, closed_to
from recover.recovery.context import Context, Step
from recover.triage.brake import in_force
from recover.triage.guard import Allowed, may_touch

__all__ = ["STARTS_MAX", "placed_past_cordon"]

STARTS_MAX = 3
"""Number of starts in a row after which the gang stays: then the scheduler is not late, and the template
itself puts the rank there, for example by `nodeName`."""
_JUST_STARTED = timedelta(minutes=2)
"""Time after a start in which another start loses little training."""


def placed_past_cordon(ctx: Context) -> Step | None:
    """Returns the step that places the gang again, or that waits for the next try; None if the gang stays."""
    began, before = started_at(ctx.status, ctx.status.attempt), _in_a_row(ctx.status)
    if ctx.status.phase is not Phase.VERIFYING or began is None or ctx.now - began > _JUST_STARTED:
        return None
    found = next(_on_closed_node(ctx), None) if before < STARTS_MAX else None
    if found is None or not _may_stop(ctx):
        return None
    pod, finding = found
    wait_s = ctx.settings.placement.again_s * before - (ctx.now - began).total_seconds()
    if wait_s > 0:
        return Step(requeue_after_s=wait_s)
    why = f"the scheduler put {pod.name} on {pod.node}, which was already cordoned for {finding.code}"
    return once_more(ctx, why)


def _in_a_row(status: RecoveryStatus) -> int:
    """Returns how many attempts right before this one do not count."""
    before = itertools.takewhile(status.uncounted.__contains__, range(status.attempt - 1, 0, -1))
    return sum(1 for _ in before)


def _on_closed_node(ctx: Context) -> Iterator[tuple[Pod, Finding]]:
    """Yields each rank that is newer than the quarantine of its node, with a fatal finding that may affect
    it. The API server dates a creation in whole seconds, and a fast gang starts again within one."""
    world, closed = ctx.world, closed_to(ctx.world, ctx.gang)
    for pod in ctx.living():
        node, health = world.nodes.get(pod.node), world.health.get(pod.node)
        if node is None or node.quarantine is None or health is None or node.name not in closed:
            continue
        is_newer = pod.created is not None and pod.created >= node.quarantine.at.replace(microsecond=0)
        if is_newer and pod.may_hold_devices:
            found = proofs(node, health, world.incidents.values(), ctx.now)
            fatal = [finding for finding in found if finding.severity is Severity.FATAL]
            its = affecting([pod], fatal, holders_on(health), ctx.timing, is_dead=False)
            yield from ((pod, finding) for finding in its[:1])


def _may_stop(ctx: Context) -> bool:
    gang, world = ctx.gang, ctx.world
    if gang.suspended or gang.terminal is not None or gang.done_ranks:
        return False
    if losses(world, ranks(world, gang), ctx.now) or not isinstance(may_touch(world, gang, ctx.now), Allowed):
        return False
    if in_force(world, (), ctx.settings.budgets, ctx.now):
        return False
    return fits_without(ctx, avoidance(ctx, ctx.status).required)
