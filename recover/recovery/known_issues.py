"""Applies known issues in a recovery: recognises them at the choice, hands over variables at the start, and
lets the new ranks verify the change.

Pure. The package recipes/ reads the recipes; this module applies them to the gang, its history, and its next
start.
"""

from __future__ import annotations

from collections.abc import Sequence

from detectors.wire.fitting import refitted
from recover.api import Condition, Phase, RecipeOutcome, RecipeUse, RecoveryStatus, Requirement
from recover.api.reasons import EventReason, Reason
from recover.model.judged_recipes import RecipeReason
from recover.recipes.decide import bounded, decide, environment, proof, requirements
from recover.recipes.gang_evidence import evidences
from recover.recovery.context import Context, Step, condition, moved
from recover.workloads import workload_of
from recover.workloads.patches import asked_by_people, environment_name, reads_environment

__all__ = ["handed_over", "held", "left_nodes", "not_tried", "placed", "recognised", "verified"]


def recognised(ctx: Context, status: RecoveryStatus) -> RecoveryStatus:
    """Returns the status with the recipes that match the evidence of this attempt."""
    known = evidences(ctx.world, ctx.gang, ctx.recovery)
    uses = decide(
        ctx.world.recipes,
        known,
        _history(ctx),
        ctx.world.nodes.values(),
        attempt=ctx.status.attempt,
        failed_on=next((witness.node for witness in ctx.recovery.witnesses), ""),
    )
    if not uses:
        return status
    all_uses = [*status.recipes, *(_with_reach(ctx, use) for use in uses)]
    return refitted(status, recipes=bounded(all_uses))


def _with_reach(ctx: Context, use: RecipeUse) -> RecipeUse:
    """Returns the use. If it sets variables that the template does not let the ranks read, its message says
    so."""
    if not use.env or workload_of(ctx.gang).start_brings_environment or reads_environment(ctx.gang):
        return use
    reach = (
        f"the job's template has no envFrom with ConfigMap {environment_name(ctx.gang)}, so variables reach "
        "only pods to which the policy rekindle-environment adds the ConfigMap"
    )
    return refitted(use, message=f"{use.message}; {reach}")


def held(ctx: Context, status: RecoveryStatus) -> Step | None:
    """Returns the end of the recovery, if only the job's owner can change what made the job fail."""
    holding = [use for use in _of_attempt(ctx, status) if use.outcome is RecipeOutcome.HELD]
    if not holding:
        return None
    words = "; ".join(f"{use.message}. {use.advice}" for use in holding)
    message = f"{ctx.gang.ref} stays suspended. {words}"
    status = not_tried(ctx, status)
    return Step(
        status=moved(ctx, Phase.ESCALATED, message, reason=Reason.KNOWN_ISSUE, status=status),
        writes=(ctx.event(EventReason.RECOVERY_FAILED, message[:900], warning=True),),
    )


def not_tried(ctx: Context, status: RecoveryStatus) -> RecoveryStatus:
    """Returns the status of a gang that is not started again: planned changes become advice, and no try
    counts."""
    uses = [
        refitted(
            use,
            outcome=RecipeOutcome.ADVISED,
            env={},
            placed=[],
            message=f"not done, because the gang stays suspended: {use.message}",
        )
        if use.attempt == ctx.status.attempt and use.outcome is RecipeOutcome.APPLIED
        else use
        for use in status.recipes
    ]
    return refitted(status, recipes=uses)


def handed_over(ctx: Context) -> dict[str, str | None]:
    """Returns the variables that recipes have set for this gang and that still apply, and None for variables
    to take back."""
    return environment(_in_force(ctx))


def placed(ctx: Context) -> tuple[Requirement, ...]:
    """Returns the requirements of recipes on the gang's nodes. A requirement that people have set already is
    theirs, and Rekindle must not undo it."""
    people = asked_by_people(ctx.gang)
    return tuple(one for one in requirements(_in_force(ctx)) if one not in people)


def left_nodes(ctx: Context, status: RecoveryStatus) -> set[str]:
    """Returns the node of the rank that was lost first, if a recipe of this attempt requires a different
    node."""
    uses = _of_attempt(ctx, status)
    applied = [
        ctx.world.recipes[use.name]
        for use in uses
        if use.outcome is RecipeOutcome.APPLIED and use.name in ctx.world.recipes
    ]
    wanted = any(r.change.placement is not None and r.change.placement.avoid_node for r in applied)
    return {witness.node for witness in ctx.recovery.witnesses[:1]} if wanted else set()


def verified(ctx: Context, *, stepped: bool, deaf: Sequence[str] = ()) -> list[Condition]:
    """Returns the status' conditions, with a condition that says whether the changes of this attempt have
    helped. `deaf` are ranks that variables do not reach: without the recipe's line, their steps prove
    nothing about a variable."""
    applied = [use for use in _of_attempt(ctx, ctx.status) if use.outcome is RecipeOutcome.APPLIED]
    recipes = [ctx.world.recipes[use.name] for use in applied if use.name in ctx.world.recipes]
    if not recipes:
        return ctx.status.conditions
    running = [told for pod in ctx.living() for told in ctx.world.containers(pod)]
    proofs = [proof(recipe, running, stepped=stepped, deaf=deaf) for recipe in recipes]
    reasons = {"log": "SeenInLog", "steps": "SeenBySteps", "": "NotSeen"}
    weakest = min(proofs, key=lambda found: ("", "steps", "log").index(found.by))
    return condition(
        ctx,
        "RecipeVerified",
        good=bool(weakest.by),
        reason=reasons[weakest.by],
        message="; ".join(found.words for found in proofs),
    )


def _history(ctx: Context) -> list[RecipeUse]:
    """Returns all uses of recipes for this gang, oldest first, including those of this recovery."""
    return [use for recovery in ctx.world.history(ctx.gang.ref.uid) for use in recovery.status.recipes]


def _in_force(ctx: Context) -> list[RecipeUse]:
    """Returns the history in which the changes of recipes that people have disabled are reverted. A recipe
    that is missing, or that cannot be used, says nothing: its object may be unreadable for a while."""
    disabled = {one.seen.name for one in ctx.world.judged_recipes if one.reason is RecipeReason.DISABLED}
    return [
        refitted(use, outcome=RecipeOutcome.GAVE_UP)
        if use.name in disabled and use.outcome is RecipeOutcome.APPLIED
        else use
        for use in _history(ctx)
    ]


def _of_attempt(ctx: Context, status: RecoveryStatus) -> list[RecipeUse]:
    return [use for use in status.recipes if use.attempt == ctx.status.attempt]
