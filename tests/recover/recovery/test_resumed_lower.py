"""A gang that begins below the step that it had reached: the Recovery reports this at once, even without a
verified checkpoint."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from tests.acting import advanced, first_step, only_recovery, recovering, step
from tests.builders import cluster, gang
from tests.facts import names


def test_a_number_that_begins_again_with_each_epoch_is_compared_with_nothing() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))  # it had reached step 100
    advanced(world, Phase.VERIFYING)
    first_step(world.later(30), 3)
    for name, health in world.health.items():
        pods = [msgspec.structs.replace(pod, step_of_epoch=True) for pod in health.status.pods]
        world.health[name] = msgspec.structs.replace(
            health, status=msgspec.structs.replace(health.status, pods=pods)
        )
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason, status.lost_steps) == (Phase.SUCCEEDED, "", None)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (0, Reason.RESUMED_FROM_SCRATCH),
        (1, Reason.RESUMED_FROM_SCRATCH),
        (81, Reason.RESUMED_OLDER),
        (100, Reason.RESUMED_OLDER),
        (101, ""),
    ],
)
def test_without_a_verified_checkpoint_the_last_step_that_was_seen_tells(first: int, reason: str) -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))  # it had reached step 100
    advanced(world, Phase.VERIFYING)
    first_step(world.later(30), first)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, reason)
    assert names(status.message, 100) is bool(reason)
