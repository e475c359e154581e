"""Writes on each Recipe object whether Rekindle uses it, and why not. Pure; a loop of runtime/controller.py
runs it.

Nothing is written while the object's status is correct.
"""

from __future__ import annotations

from datetime import datetime

from detectors.wire.fitting import fitted
from recover.api import Condition
from recover.api.recipe import ACCEPTED, RecipeStatus
from recover.k8s.bodies import builtins
from recover.k8s.kinds import RECIPES
from recover.model import World
from recover.model.actions import Patch, Plan
from recover.model.judged_recipes import JudgedRecipe

__all__ = ["tell"]


def tell(world: World, now: datetime) -> Plan:
    """Returns the writes of the condition Accepted, for every object whose status is not up to date."""
    told = ((one, _status(one, now)) for one in world.judged_recipes)
    return Plan(chains=tuple((_patch(one, status),) for one, status in told if status != one.seen.status))


def _status(one: JudgedRecipe, now: datetime) -> RecipeStatus:
    """Returns the status of an object. The time is that of the last change between True and False, as in all
    conditions of Kubernetes."""
    status = "True" if one.accepted else "False"
    before = next((c for c in one.seen.status.conditions if c.type == ACCEPTED), None)
    same = before is not None and before.status == status
    condition = fitted(
        Condition,
        type=ACCEPTED,
        status=status,
        reason=one.reason.value,
        message=one.message,
        last_transition_time=before.last_transition_time if before is not None and same else now,
    )
    return fitted(RecipeStatus, observed_generation=one.seen.generation, conditions=[condition])


def _patch(one: JudgedRecipe, status: RecipeStatus) -> Patch:
    return Patch(
        what="tell-recipe",
        resource=RECIPES,
        name=one.seen.name,
        uid=one.seen.uid,
        version=one.seen.version,
        subresource="status",
        body={"status": builtins(status)},
    )
