"""The oracle: each decision of the controller is made once more, about all that there is, and must be the
same. The controller looks only at what is out of the ordinary (runtime/few.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime

import msgspec

from recover.model import World
from recover.model.actions import Plan

__all__ = ["of_everything", "unlike"]


def of_everything(world: World) -> World:
    """The same objects without anything that is kept beside them."""
    return msgspec.structs.replace(world, few=None, counted=None, pods_on=None, present=None)


def unlike(decide: Callable[[World, datetime], Plan], world: World, now: datetime, plan: Plan) -> list[str]:
    """A sentence for each thing in which the plan differs from the plan for the whole world. The order of the
    chains is none of them: they are written at the same time."""
    whole = decide(of_everything(world), now)
    seen, wanted = (Counter(map(repr, one.chains)) for one in (plan, whole))
    found = [f"left out: {chain}" for chain in wanted - seen]
    found += [f"too much: {chain}" for chain in seen - wanted]
    if plan.requeue_after_s != whole.requeue_after_s:
        found.append(f"looks again after {plan.requeue_after_s} s, not after {whole.requeue_after_s} s")
    if len(plan.failures) != len(whole.failures):
        found.append(f"{len(plan.failures)} objects cannot be judged, not {len(whole.failures)}")
    return found
