"""A stopped gang that cannot fit is not started: it waits, says what is missing, and starts by itself. Pure.

Ranks that did start would hold accelerators and exit at their rendezvous' timeout, which looks like a failure
of theirs. An autoscaler adds nodes only for pods that wait, and takes away those that a stopped gang leaves
idle: where one shows, the gang is started all the same. An elastic gang needs room for its fewest ranks only.
Sources: github.com/kubernetes/autoscaler (cluster-autoscaler FAQ), karpenter.sh/docs/concepts/nodepools.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from detectors.wire.fitting import refitted
from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.model import World
from recover.recovery import known_issues
from recover.recovery.again import pause_s
from recover.recovery.context import Context, Step, moved
from recover.triage.capacity import RESERVED_S, Room, room

__all__ = ["is_autoscaled", "without_room"]

SETTLES_S = 3.0
"""Gangs that start together are bound to their nodes within this time. A wait for that alone is no news."""
_KARPENTER = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")
"""Labels of the nodes that it has made."""
_CLUSTER_AUTOSCALER = frozenset({"DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"})
"""Taints of the nodes that it will take away if they stay idle, or does now."""


def is_autoscaled(world: World) -> bool:
    """An autoscaler has made, or may take away, a node with accelerators."""
    nodes = (node for node in world.nodes.values() if node.is_accelerated)
    return any(
        any(label in node.labels for label in _KARPENTER)
        or any(taint.key in _CLUSTER_AUTOSCALER for taint in node.taints)
        for node in nodes
    )


def without_room(ctx: Context, without: Mapping[str, str]) -> Step | None:
    """The wait for places, off the nodes that it is kept `without`; None once all ranks fit."""
    gang, status = ctx.gang, ctx.status
    waits = (status.phase, status.reason) == (Phase.BLOCKED, Reason.NO_CAPACITY)
    found, ended = Room(), status.attempt - 1
    # At the last start some ranks found no place, and the others gave up waiting for them.
    wait_s = pause_s(ctx, ended) if ended in status.uncounted else 0.0
    if ctx.settings.placement.hold_without_room and not is_autoscaled(ctx.world):
        found = room(
            ctx.world,
            gang,
            ctx.now,
            without=without,
            placed=known_issues.placed(ctx),
            priority=status.priority,
            tolerations=status.tolerations,
        )
        found = Room() if found.missing <= gang.may_lack else found
    if found.fits and wait_s <= 0:
        return _released(ctx) if waits else None
    settles_s = SETTLES_S - (ctx.now - status.phases[-1].at).total_seconds()
    if found.reserved and not waits and settles_s > 0 >= wait_s:
        return Step(look_again_s=settles_s)
    look_again_s = wait_s if wait_s > 0 else RESERVED_S if found.reserved else None
    head, rest = _words(ctx, found, wait_s)
    if waits and status.message.startswith(head):
        return Step(look_again_s=look_again_s)
    if waits:
        return Step(status=refitted(status, message=head + rest))
    return Step(
        status=moved(ctx, Phase.BLOCKED, head + rest, reason=Reason.NO_CAPACITY),
        writes=(ctx.event(EventReason.RECOVERY_BLOCKED, head + rest, warning=True),),
    )


def _released(ctx: Context) -> Step:
    message = f"{ctx.gang.ref} fits: starting all {ctx.gang.size} ranks"
    within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
    return Step(status=moved(ctx, Phase.RESUMING, message, within_s=within_s))


def _words(ctx: Context, found: Room, wait_s: float) -> tuple[str, str]:
    """The message, in the part that tells whether it is news, and the rest."""
    if not found.fits:
        in_use = f"; {found.in_use} other node(s) are in use" if found.in_use else ""
        head = f"{ctx.gang.ref} is not started yet: {found.words}"[:900]
        return head, f"{in_use}. It starts by itself as soon as it fits"
    at = ctx.now + timedelta(seconds=wait_s)
    head = f"{ctx.gang.ref} is not started yet: at its last start some ranks found no place"
    return head, f", and the others ended while they waited. It is started again at {at:%H:%M:%S}"
