"""Why a recovery runs: its first cause, and those that join it later. Pure."""

from __future__ import annotations

import msgspec

from detectors.wire.fitting import fitted, refitted
from recover.api import Blame, Cause, Incident
from recover.diagnose.answered import answered, answers
from recover.diagnose.ranks import losses
from recover.diagnose.set_aside import set_aside
from recover.diagnose.signals import as_findings, is_of_a_signal
from recover.diagnose.starts import ranks
from recover.recovery.context import CAUSES_MAX, Context
from recover.triage import quarantine

__all__ = ["affecting", "are_gone", "are_placed", "corrected_causes", "first_cause", "fresh_causes"]


def first_cause(ctx: Context) -> Cause:
    spec = ctx.spec
    if spec.causes:
        return spec.causes[0]
    return fitted(
        Cause,  # opened by a version that kept no causes there
        incident=spec.incident,
        fault=spec.fault,
        attempt=1,
        at=spec.detected_at,
        node=spec.avoid_node,
        summary=spec.summary,
    )


def fresh_causes(ctx: Context) -> list[Cause]:
    """What triage has told this recovery since, and it has not taken up yet."""
    taken = {(cause.incident, cause.finding) for cause in ctx.status.causes}
    fresh = [cause for cause in ctx.spec.causes if (cause.incident, cause.finding) not in taken]
    return [
        msgspec.structs.replace(cause, attempt=ctx.status.attempt)
        for cause in fresh
        if not _is_crowded_out(ctx, cause)
    ]


def are_gone(ctx: Context) -> str:
    """Why the gang need not be stopped any more, in words; empty where it must. No rank is lost, and each
    fault that the recovery knows of was answered, as by a person's release of the node, has ended, or does
    not count while somebody works on the node's driver."""
    causes = {(c.incident, c.finding): c for c in [first_cause(ctx), *ctx.spec.causes, *ctx.status.causes]}
    gone = [_gone(ctx, cause) for cause in causes.values()]
    if not all(gone) or losses(ctx.world, ranks(ctx.world, ctx.gang), ctx.now):
        return ""
    return f"Rekindle does not stop {ctx.gang.ref}: {'; '.join(sorted(set(gone)))[:800]}"


def _gone(ctx: Context, cause: Cause) -> str:
    """A finding that its agent shows no more, or of which nobody tells, may be open all the same."""
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
    is_released = node.quarantine is not None and quarantine.is_released(node)
    if is_released or answered(shown, answers(node, about), ctx.now):
        return f"the quarantine of {node.name} was ended although the node still had the finding {shown.code}"
    return ""


def _is_crowded_out(ctx: Context, cause: Cause) -> bool:
    """Of more broken nodes than there is room for causes, one that gave its place to a later cause would come
    back at each look."""
    known = ctx.status.causes
    return len(known) >= CAUSES_MAX and cause.node != "" and cause.at <= max(one.at for one in known)


def affecting(ctx: Context, fresh: list[Cause]) -> list[Cause]:
    """Those for which a gang that was started again must be stopped once more. A node's fault that triage
    wrote while the start was under way harms it only where a rank has come to that node."""
    pods = ranks(ctx.world, ctx.gang)
    if losses(ctx.world, pods, ctx.now):
        return fresh
    used = {pod.node for pod in pods}
    return [cause for cause in fresh if cause.blame is not Blame.NODE or cause.node in used]


def are_placed(ctx: Context) -> bool:
    """Every rank has its node: it is known which nodes the start has left."""
    pods = ranks(ctx.world, ctx.gang)
    return len(pods) >= ctx.gang.size and all(pod.node for pod in pods)


def corrected_causes(ctx: Context) -> list[Cause]:
    """The causes in the words of what is known by now: a gang's own trouble may prove a node's fault."""
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
