"""Decides which nodes a gang is kept off, and which nodes it only prefers to leave, by the facts of this
moment. Pure.

A proven fault keeps the gang off its node for as long as it is open, whatever the age of the mode. A
suspicion only makes other nodes preferable. Neither is remembered: both are computed again at every start,
and while the gang waits for places. The status shows both; the job's mark says what its affinity has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from detectors.wire.fitting import limit, refitted
from recover.api import Blame, Cause, RecoveryStatus
from recover.diagnose.what_counts import proven, suspected
from recover.diagnose.what_trained import trained_after
from recover.k8s.pod_specs import HOSTNAME
from recover.model import Gang, World
from recover.model.tolerations import tolerates_all
from recover.recovery import known_issues
from recover.recovery.context import Context
from recover.triage.guard import is_out_of_service
from recover.triage.quarantine import out_words

__all__ = ["Avoidance", "avoidance", "closed_to", "host_of", "shown", "to_avoid"]

HOSTS_MAX, SUSPECTS_MAX = 1024, limit(RecoveryStatus, "suspects")
NOT_READY = "not ready"


class Avoidance(msgspec.Struct, frozen=True):
    required: Mapping[str, str]
    """Nodes that the gang must not use now, each with the reason."""
    broken: Mapping[str, str]
    """Those nodes of `required` that have a proven fault, each with the reason."""
    suspected: Mapping[str, str]
    """Nodes that the gang should rather not use, each with the reason."""
    hosts: tuple[str, ...]
    """Host names that the affinity must exclude: those of nodes from which no taint keeps the gang, and which
    people have not excluded already."""
    suspected_hosts: tuple[str, ...]


def avoidance(ctx: Context, status: RecoveryStatus) -> Avoidance:
    world, gang = ctx.world, ctx.gang
    broken = {name: f"open fault {code}" for name, code in proven(world, ctx.now).items()}
    is_tolerant, closed = tolerates_all(gang), closed_to(world, gang)
    nodes = world.subjects.nodes.values()
    silent = {node.name: NOT_READY for node in nodes if not node.ready and node.is_accelerated}
    required = {**silent, **{name: _why_out(world, name, why) for name, why in broken.items()}}
    # Kubernetes itself keeps a gang off a node that is not ready, unless it tolerates everything.
    hosts = [n for n in sorted(required) if n not in closed and (n in broken or is_tolerant)]
    doubtful = {n: why for n, why in _suspects(ctx, status).items() if n not in required and n not in closed}
    suspects = dict(islice(doubtful.items(), SUSPECTS_MAX))
    by_people = _excluded_by_people(gang)
    return Avoidance(
        required=required,
        broken=broken,
        suspected=suspects,
        hosts=tuple(h for h in (host_of(world, n) for n in hosts) if h not in by_people)[:HOSTS_MAX],
        suspected_hosts=tuple(host_of(world, name) for name in suspects),
    )


def shown(ctx: Context, status: RecoveryStatus) -> RecoveryStatus:
    """Returns the status with the nodes that are avoided now. Of the broken nodes it shows those that concern
    this gang."""
    found = avoidance(ctx, status)
    about = {cause.node for cause in status.causes} | {*ctx.recovery.nodes, *ctx.spec.nodes}
    in_force = set(found.hosts)
    names = sorted(n for n in found.required if n in about or host_of(ctx.world, n) in in_force)
    return refitted(status, avoid_nodes=names, suspects=sorted(found.suspected))


def to_avoid(gang: Gang, world: World, now: datetime) -> tuple[str, ...]:
    """Returns the host names that the scan pod must avoid: nodes with a proven fault, except those that
    Rekindle's own cordon already closes to a pod like the gang's."""
    closed = closed_to(world, gang)
    return tuple(host_of(world, n) for n in sorted(proven(world, now)) if n not in closed)[:HOSTS_MAX]


def closed_to(world: World, gang: Gang) -> set[str]:
    """Returns the nodes that our own quarantine keeps the gang off. A person or a repair ends such a
    quarantine, but an affinity would remain in the pods that wait."""
    if tolerates_all(gang):
        return set()
    out = (n for n in world.subjects.nodes.values() if n.quarantine is not None and n.quarantine.cordoned)
    return {node.name for node in out if node.unschedulable}


# --- suspicions -------------------------------------------------------------------------------------------


def _suspects(ctx: Context, status: RecoveryStatus) -> dict[str, str]:
    """Returns the suspects: first the nodes of the recovery's causes, then nodes that a known issue makes the
    gang leave, then other suspects."""
    found = {cause.node: cause.summary for cause in status.causes if _is_suspicious(ctx, cause)}
    for name in sorted(known_issues.left_nodes(ctx, status)):
        found.setdefault(name, "a known issue occurred there")
    for name, code in suspected(ctx.world, ctx.now, ctx.settings.placement.suspicion_s).items():
        found.setdefault(name, code)
    return found


def _is_suspicious(ctx: Context, cause: Cause) -> bool:
    """Whether the cause's node is still a suspect: since the cause, no person or repair has returned the node
    to service, no training has continued on it, and the suspicion has not expired. After a reboot the proof
    of the cause is gone, and the suspicion stays."""
    if cause.blame is not Blame.NODE and cause.attempt - 1 in ctx.status.uncounted:
        return False  # its ranks only waited for others in vain
    node = ctx.world.nodes.get(cause.node)
    if node is None or cause.at < ctx.now - timedelta(seconds=ctx.settings.placement.suspicion_s):
        return False
    if node.released_at is not None and node.released_at > cause.at:
        return False
    return not trained_after(ctx.world.health.get(node.name), cause.at)


# --- host names -------------------------------------------------------------------------------------------


def host_of(world: World, name: str) -> str:
    """Returns the host name of a node. The host name in a node's label need not be the name of the Node."""
    node = world.nodes.get(name)
    return (node.labels.get(HOSTNAME) if node is not None else None) or name


def _why_out(world: World, name: str, why: str) -> str:
    """Returns why the node is avoided. For a quarantined node, the words say so and name the command that
    ends the quarantine."""
    node = world.nodes[name]
    return out_words(node, why) if is_out_of_service(node) else why


def _excluded_by_people(gang: Gang) -> set[str]:
    """Returns the hosts that every template excludes without Rekindle. Rekindle must not later undo what
    people have set."""
    excluded = [set(template.avoided) for template in gang.templates.values()]
    everywhere = set.intersection(*excluded) if excluded else set()
    return everywhere - set(gang.mark.avoided if gang.mark else ())
