"""The oracle: it makes each decision of the controller once more, about all objects, and the result must be
the same. The controller itself considers only what is out of the ordinary (runtime/subject_index.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime

import msgspec

from recover.model import World
from recover.model.actions import Plan

__all__ = ["of_everything", "unlike"]


def of_everything(world: World) -> World:
    """Returns the same objects without the indexes and counts that the World keeps, so that a decision goes
    through all objects."""
    return msgspec.structs.replace(
        world,
        indexed_subjects=None,
        indexed_active=None,
        counted=None,
        pods_on=None,
        new_pods_memo=None,
        kept_groups=None,
    )


def unlike(decide: Callable[[World, datetime], Plan], world: World, now: datetime, plan: Plan) -> list[str]:
    """Returns a sentence for each difference between the plan and the plan for the whole World. The order of
    the chains is no difference, because the chains are written at the same time."""
    whole = decide(of_everything(world), now)
    seen, wanted = (Counter(map(repr, one.chains)) for one in (plan, whole))
    found = [f"left out: {chain}" for chain in wanted - seen]
    found += [f"too much: {chain}" for chain in seen - wanted]
    if plan.requeue_after_s != whole.requeue_after_s:
        found.append(f"looks again after {plan.requeue_after_s} s, not after {whole.requeue_after_s} s")
    if len(plan.failures) != len(whole.failures):
        found.append(f"{len(plan.failures)} objects cannot be judged, not {len(whole.failures)}")
    return found
