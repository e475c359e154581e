"""Keeps the causes of a recovery: its first cause, and the causes that join it later. Pure."""

from __future__ import annotations

import msgspec

from detectors.wire.fitting import fitted, refitted
from recover.api import Blame, Cause, Incident
from recover.diagnose.answered import answered, answers
from recover.diagnose.ranks import losses
from recover.diagnose.released import answer_of_person, is_released
from recover.diagnose.set_aside import set_aside
from recover.diagnose.signals import as_findings, is_of_a_signal
from recover.diagnose.starts import ranks
from recover.recovery.context import CAUSES_MAX, Context

__all__ = ["affecting", "are_gone", "are_placed", "corrected_causes", "first_cause", "fresh_causes"]


def first_cause(ctx: Context) -> Cause:
    spec = ctx.spec
    if spec.causes:
        return spec.causes[0]
    return fitted(
        Cause,  # opened by a version that did not keep causes in the spec
        incident=spec.incident,
        fault=spec.fault,
        attempt=1,
        at=spec.detected_at,
        node=spec.avoid_node,
        summary=spec.summary,
    )


def fresh_causes(ctx: Context) -> list[Cause]:
    """Returns the causes that triage has added and that the recovery has not taken up yet."""
    taken = {(cause.incident, cause.finding) for cause in ctx.status.causes}
    fresh = [cause for cause in ctx.spec.causes if (cause.incident, cause.finding) not in taken]
    return [
        msgspec.structs.replace(cause, attempt=ctx.status.attempt)
        for cause in fresh
        if not _is_crowded_out(ctx, cause)
    ]


def are_gone(ctx: Context) -> str:
    """Returns why the gang need not be stopped any more, in words; empty if it must be stopped. The gang need
    not be stopped if no rank is lost and every known fault was answered (for example by a person who ended
    the quarantine of the node), has ended, or does not count while somebody works on the node's driver."""
    causes = {(c.incident, c.finding): c for c in [first_cause(ctx), *ctx.spec.causes, *ctx.status.causes]}
    gone = [_gone(ctx, cause) for cause in causes.values()]
    if not all(gone) or losses(ctx.world, ranks(ctx.world, ctx.gang), ctx.now):
        return ""
    return f"Rekindle does not stop {ctx.gang.ref}: {'; '.join(sorted(set(gone)))[:800]}"


def _gone(ctx: Context, cause: Cause) -> str:
    """Returns why the cause is gone, in words; empty if it may still exist. A finding that its agent no
    longer shows, or on which no agent reports, may still be open."""
    world, node = ctx.world, ctx.world.nodes.get(cause.node)
    health = world.health.get(cause.node)
    if node is None or health is None or health.status.boot_id != (node.boot_id or health.status.boot_id):
        return ""
    told = (*health.status.findings, *as_findings(node, ctx.now))
    shown = next((f for f in told if f.id == cause.finding), None)
    if shown is None and is_of_a_signal(cause.finding):
        return f"the signal on {node.name} has disappeared ({cause.finding})"
    if shown is None:
        return ""
    if shown.cleared_at is not None:
        return f"the fault of {node.name} has ended ({shown.code}, {shown.cleared_by})"
    work = next((work for f, work in set_aside(node, health, ctx.now) if f.id == shown.id), None)
    if work is not None:
        return f"Rekindle does not act on {shown.code} of {node.name} during {work.what} ({work.label})"
    about = [incident for incident in world.incidents.values() if incident.spec.node == node.name]
    given = list(answers(node, about))
    if is_released(node):
        given.append(answer_of_person(world, node, ctx.now).answer)
    if answered(shown, given, ctx.now):
        return f"the quarantine of {node.name} was ended although the node still had the finding {shown.code}"
    return ""


def _is_crowded_out(ctx: Context, cause: Cause) -> bool:
    """Whether the list of causes is full and the node's cause is not newer than the newest entry. If more
    nodes break than the list has room for, a cause that gave its place to a later cause would otherwise come
    back at each reconcile."""
    known = ctx.status.causes
    return len(known) >= CAUSES_MAX and cause.node != "" and cause.at <= max(one.at for one in known)


def affecting(ctx: Context, fresh: list[Cause]) -> list[Cause]:
    """Returns the causes for which a gang that was started again must be stopped once more. If triage wrote a
    node's fault while the start was under way, the fault affects the start only if a rank has come to that
    node."""
    pods = ranks(ctx.world, ctx.gang)
    if losses(ctx.world, pods, ctx.now):
        return fresh
    used = {pod.node for pod in pods}
    return [cause for cause in fresh if cause.blame is not Blame.NODE or cause.node in used]


def are_placed(ctx: Context) -> bool:
    """Whether every rank has a node. Only then is it certain that no rank of this start comes to a node that
    has broken since."""
    pods = ranks(ctx.world, ctx.gang)
    return len(pods) >= ctx.gang.size and all(pod.node for pod in pods)


def corrected_causes(ctx: Context) -> list[Cause]:
    """Returns the causes, corrected by what is known now: a gang's own failure may prove to be a node's
    fault."""
    return [_corrected(ctx, cause, ctx.world.incidents.get(cause.incident)) for cause in ctx.status.causes]


def _corrected(ctx: Context, cause: Cause, incident: Incident | None) -> Cause:
    if incident is None or not incident.status.superseded_by:
        return cause
    status, fault = incident.status, ctx.world.incidents.get(incident.status.superseded_by)
    return refitted(
        cause,
        node=status.blamed_node,
        summary=status.summary,
        blame=status.blame,
        fault=fault.fault if fault is not None else cause.fault,
    )
