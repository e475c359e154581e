"""Keeps a stopped gang that cannot fit from its start: the gang waits, its Recovery says what is missing, and
Rekindle starts the gang once it fits. Pure.

Otherwise the ranks that did start would occupy accelerators and exit at the timeout of their rendezvous,
which looks like a failure of these ranks. An autoscaler adds nodes only for pods that wait, and removes nodes
that a stopped gang leaves idle: if the cluster shows an autoscaler, the gang is started anyway. An elastic
gang needs room only for its smallest number of ranks. The gang also waits for places that are reserved for
gangs which were started a moment ago, but not for long. Sources: github.com/kubernetes/autoscaler
(cluster-autoscaler FAQ), karpenter.sh/docs/concepts/nodepools.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from detectors.wire.fitting import refitted
from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.model import Node, World
from recover.recovery import known_issues
from recover.recovery.again import pause_s
from recover.recovery.context import Context, Step, moved
from recover.triage.capacity import Room, room
from recover.triage.offers import Supply
from recover.triage.reserved import CREATED_S, RESERVED_S

__all__ = ["is_autoscaled", "without_room"]

KEPT_S_MAX = 5 * RESERVED_S
"""Longest wait for places that are free but reserved. After `RESERVED_S` only places count that are reserved
for gangs which were started within the last seconds: a person who starts one gang after the other cannot keep
another gang waiting."""
SETTLES_S = 3.0
"""Time within which gangs that start together are bound to their nodes. A wait for that alone is not
reported."""
_KARPENTER = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")
"""Labels of the nodes that Karpenter has created."""
_CLUSTER_AUTOSCALER = frozenset({"DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"})
"""Taints of the nodes that cluster-autoscaler removes now, or will remove if they stay idle."""


def is_autoscaled(world: World) -> bool:
    """Whether an autoscaler has created, or may remove, a node with accelerators."""
    return any(group.key for group in world.grouped("autoscaled", _is_autoscaled).groups)


def _is_autoscaled(node: Node) -> bool:
    return node.is_accelerated and (
        any(label in node.labels for label in _KARPENTER)
        or any(taint.key in _CLUSTER_AUTOSCALER for taint in node.taints)
    )


def without_room(ctx: Context, without: Mapping[str, str]) -> Step | None:
    """Returns the step that waits for places outside the nodes in `without`, or None once all ranks fit."""
    status, ended = ctx.status, ctx.status.attempt - 1
    waits = status.reason == Reason.NO_CAPACITY and status.phase in (Phase.BLOCKED, Phase.RESUMING)
    # At the last start some ranks found no place, and the others stopped waiting for them.
    wait_s = pause_s(ctx, ended) if ended in status.uncounted else 0.0
    found = _found(ctx, without)
    is_short = found.lacking > ctx.gang.may_lack
    if wait_s <= 0 and not is_short:
        if found.missing > ctx.gang.may_lack:
            return _beside_others(ctx, found)
        return _unblocked(ctx) if waits else None
    head, rest = _words(ctx, found if is_short else Room(), wait_s)
    requeue_after_s = wait_s if wait_s > 0 else None
    if status.phase is Phase.RESUMING or not waits:
        return Step(
            status=moved(ctx, Phase.BLOCKED, head + rest, reason=Reason.NO_CAPACITY),
            writes=(ctx.event(EventReason.RECOVERY_BLOCKED, head + rest, warning=True),),
        )
    if status.message.startswith(head):
        return Step(requeue_after_s=requeue_after_s)
    return Step(status=refitted(status, message=head + rest))


def _found(ctx: Context, without: Mapping[str, str]) -> Room:
    if not ctx.settings.placement.hold_without_room or is_autoscaled(ctx.world):
        return Room()
    waited_s = (ctx.now - _begins(ctx)).total_seconds()
    return room(
        Supply(ctx.world),
        ctx.gang,
        ctx.now,
        without=without,
        placed=known_issues.placed(ctx),
        priority=ctx.status.priority,
        tolerations=ctx.status.tolerations,
        kept_s=RESERVED_S if waited_s < RESERVED_S else CREATED_S if waited_s < KEPT_S_MAX else 0.0,
    )


def _begins(ctx: Context) -> datetime:
    """Returns when the gang first entered the phase Resuming for this start. Once reserved places are free,
    the gang enters the phase again, so that its deadline counts from then. The wait for reserved places
    counts from the first entry, so that it stays limited."""
    begun = ctx.now
    for entered in reversed(ctx.status.phases):
        if entered.phase is not Phase.RESUMING or entered.attempt != ctx.status.attempt:
            break
        begun = entered.at
    return begun


def _beside_others(ctx: Context, found: Room) -> Step:
    """Returns the step for a gang that fits, but not together with a gang that was started a moment ago.
    Within seconds the pods of the other gang have places, or give the places up."""
    status = ctx.status
    message = f"Rekindle does not start {ctx.gang.ref} yet, because {found.kept_words}"
    if status.phase is not Phase.RESUMING:
        within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
        return Step(status=moved(ctx, Phase.RESUMING, message, reason=Reason.NO_CAPACITY, within_s=within_s))
    waited_s = (ctx.now - _begins(ctx)).total_seconds()
    if waited_s < SETTLES_S:
        return Step(requeue_after_s=SETTLES_S - waited_s)
    if status.reason != Reason.NO_CAPACITY:
        return Step(status=refitted(status, reason=Reason.NO_CAPACITY, message=message))
    return Step(requeue_after_s=SETTLES_S)


def _unblocked(ctx: Context) -> Step:
    message = f"there is room for {ctx.gang.ref}: Rekindle starts all {ctx.gang.size} ranks"
    within_s = ctx.allowed_s(ctx.timing.resume_deadline_s)
    return Step(status=moved(ctx, Phase.RESUMING, message, within_s=within_s))


def _words(ctx: Context, found: Room, wait_s: float) -> tuple[str, str]:
    """Returns the message in two parts: the part whose change is worth a new message, and the rest."""
    if found.lacking:
        in_use = f"; other nodes in use: {found.in_use}" if found.in_use else ""
        head = f"Rekindle does not start {ctx.gang.ref} yet: {found.words}"[:900]
        return head, f"{in_use}. Rekindle starts the job as soon as all ranks fit"
    at = ctx.now + timedelta(seconds=wait_s)
    head = f"Rekindle does not start {ctx.gang.ref} yet: at the last start some ranks found no place"
    return (
        head,
        f", and the other ranks ended while they waited. Rekindle starts the job again at {at:%H:%M:%S} UTC",
    )
