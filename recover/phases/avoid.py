"""Which nodes a gang is kept off at its next start, by what is known when it starts. Pure.

Its causes name most of them. What is learnt before the start changes them: a suspect is let in again once
another node proves to be to blame, and whatever else is broken by then is avoided too.
"""

from __future__ import annotations

from collections.abc import Iterable

from detectors.contract import Fault, Severity
from recover.api import Blame, Cause
from recover.consent import in_force_for
from recover.diagnose import Apart
from recover.diagnose.nodes import node_faults
from recover.phases.context import AVOIDED_MAX, Context

__all__ = ["avoided", "broken", "closed", "is_back"]


def avoided(ctx: Context, causes: Iterable[Cause]) -> list[str]:
    """The nodes to avoid where these are the causes: whom none of them names any more is let in."""
    named = {cause.node for cause in causes}
    cleared = {cause.node for cause in ctx.status.causes} - named
    return sorted({*ctx.status.avoid_nodes, *named} - cleared - {""})[:AVOIDED_MAX]


def is_back(ctx: Context, name: str) -> bool:
    """It was only not heard of for a while, in one and the same boot: kept out, it would be missed on a full
    cluster. While a node is silent Kubernetes itself keeps new pods away."""
    node = ctx.world.nodes.get(name)
    if node is None or not node.ready:
        return False
    found = [(c, ctx.world.incidents.get(c.incident)) for c in ctx.status.causes if c.node == name]
    about = [(cause, i) for cause, i in found if i is None or i.spec.node]  # of the node, not of the gang
    return bool(about) and all(
        cause.fault is Fault.HOST and incident is not None and incident.spec.boot_id == node.boot_id
        for cause, incident in about
    )


def broken(ctx: Context) -> list[str]:
    """Nodes with a fatal fault that take pods all the same, and are not avoided yet: a limit may have refused
    their quarantine, or triage has not come to it. The gang need not have run there."""
    since, out = in_force_for(ctx.world, ctx.gang).acting_since, closed(ctx)
    return sorted(
        fault.node
        for fault in node_faults(ctx.world, frozenset(), ctx.timing, ctx.now, Apart())
        if (fault.blame, fault.severity) == (Blame.NODE, Severity.FATAL)
        and fault.seen_at >= since
        and fault.node not in ctx.status.avoid_nodes
        and fault.node not in out
    )


def closed(ctx: Context) -> set[str]:
    """The nodes that a NoSchedule taint of ours keeps the gang off."""
    tolerant = any(
        t.get("operator") == "Exists" and not t.get("key")
        for template in ctx.gang.templates.values()
        for t in template.tolerations
    )
    out = (n for n in ctx.world.nodes.values() if n.quarantine is not None and n.quarantine.cordoned)
    return set() if tolerant else {node.name for node in out}
