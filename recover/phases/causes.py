"""Why a recovery runs: its first cause, and those that join it later. Pure."""

from __future__ import annotations

import msgspec

from recover.api import Cause, Incident, IncidentPhase, Outcome
from recover.guard import RESTART_GANG
from recover.phases.context import AVOIDED_MAX, CAUSES_MAX, Context

__all__ = ["corrected_causes", "first_cause", "fresh_causes"]


def first_cause(ctx: Context) -> Cause:
    spec = ctx.spec
    return Cause(
        incident=spec.incident,
        fault=spec.fault,
        attempt=1,
        at=spec.detected_at,
        node=spec.avoid_node,
        summary=spec.summary,
    )


def fresh_causes(ctx: Context) -> list[Cause]:
    """Open incidents that triage has decided shall restart this gang, and that did not yet.

    A job that was deleted and made again has another uid: what befell the old one is not its concern.
    """
    known = {
        name
        for recovery in ctx.world.history(ctx.gang.ref.uid)
        for name in (recovery.spec.incident, *(cause.incident for cause in recovery.status.causes))
    }
    target = str(ctx.gang.ref)
    found = [
        incident
        for name, incident in ctx.world.incidents.items()
        if name not in known
        and incident.status.phase is IncidentPhase.OPEN
        and any(victim.uid == ctx.gang.ref.uid for victim in incident.status.victims)
        and any(
            record.action == RESTART_GANG and record.target == target and record.outcome is Outcome.DONE
            for record in incident.status.actions
        )
    ]
    causes = [_cause(ctx, i) for i in sorted(found, key=lambda i: (i.spec.detected_at, i.metadata.name))]
    return [cause for cause in causes if not _is_crowded_out(ctx, cause)]


def _is_crowded_out(ctx: Context, cause: Cause) -> bool:
    """Of more broken nodes than there is room for causes, that they are avoided tells that they are known: a
    cause that gave its place to a later one would else come back at each look."""
    avoided = ctx.status.avoid_nodes
    is_full = len(ctx.status.causes) >= CAUSES_MAX
    return is_full and cause.node != "" and (cause.node in avoided or len(avoided) >= AVOIDED_MAX)


def corrected_causes(ctx: Context) -> list[Cause]:
    """The causes in the words of what is known by now: a gang's own trouble may prove a node's fault."""
    return [_corrected(cause, ctx.world.incidents.get(cause.incident)) for cause in ctx.status.causes]


def _corrected(cause: Cause, incident: Incident | None) -> Cause:
    if incident is None or not incident.status.superseded_by:
        return cause
    status = incident.status
    return msgspec.structs.replace(cause, node=status.blamed_node, summary=status.summary)


def _cause(ctx: Context, incident: Incident) -> Cause:
    spec, status = incident.spec, incident.status
    suspect = status.suspects[0].node if status.suspects else ""
    return Cause(
        incident=incident.metadata.name,
        fault=spec.fault,
        attempt=ctx.status.attempt,
        at=spec.detected_at,
        node=status.blamed_node or spec.node or suspect,
        summary=status.summary,
    )
