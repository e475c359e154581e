"""Rekindle wakes a framework's controller that has forgotten a job, by a change of the job that has no
effect."""

from __future__ import annotations

import msgspec

from recover.api import Phase
from recover.api.reasons import EventReason
from recover.model import PodPhase, Refusal
from recover.model.actions import Emit, Patch
from recover.recovery.wake import FORGOTTEN_S
from tests.acting import acts, advanced, look, start_pods, step
from tests.builders import Worlds
from tests.facts import names
from tests.recover.recovery.phase_cases import faulted

WOKE = "wake-framework"


def started_without_pods() -> Worlds:
    world = faulted()
    advanced(world, Phase.RESUMING)
    assert step(world) == ["start-gang"]
    return world


def stopped_in_vain() -> Worlds:
    """Returns a gang whose job is suspended, although nothing deletes its pods."""
    world = faulted()
    advanced(world, Phase.STOPPING)
    assert "stop-gang" in step(world)
    return world


def settled(world: Worlds) -> None:
    """Writes everything else that the recovery has to report at this time."""
    for _ in range(3):
        step(world)


def test_a_started_job_without_pods_is_changed_again_after_five_minutes() -> None:
    world = started_without_pods()

    assert WOKE not in acts(look(world.later(FORGOTTEN_S - 60)))
    settled(world.later(61))

    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    assert (mark.did, mark.woken) == ("resumed", 1)


def test_a_stopped_job_whose_pods_nobody_ends_is_changed_again() -> None:
    world = stopped_in_vain()

    assert WOKE not in acts(look(world.later(FORGOTTEN_S - 60)))
    settled(world.later(61))

    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    assert (mark.did, mark.woken) == ("stopped", 1)


def test_each_time_it_waits_twice_as_long() -> None:
    world = started_without_pods()
    (recovery,) = world.recoveries.values()
    began = next(one.at for one in recovery.status.phases if one.phase is Phase.RESUMING)

    woken = [(world.now - began).total_seconds() for _ in range(240) if WOKE in step(world.later(30))]

    assert [round(at / FORGOTTEN_S) for at in woken] == [1, 2, 4, 8, 16]


def test_the_change_is_of_the_mark_alone() -> None:
    world = started_without_pods()
    settled(world.later(FORGOTTEN_S - 1))

    found = look(world.later(2)).actions
    (patch,) = [a for a in found if isinstance(a, Patch) and a.what == WOKE]

    assert list(patch.body) == ["metadata"]
    assert list(patch.body["metadata"]) == ["annotations"]
    assert list(patch.body["metadata"]["annotations"]) == ["rekindle.dev/recovery"]
    (event,) = [a for a in found if isinstance(a, Emit) and a.reason is EventReason.FRAMEWORK_WOKEN]
    assert names(event.message, "created", "PyTorchJob ml/llm", 310)


def test_pods_that_wait_for_room_are_no_reason() -> None:
    world = started_without_pods()
    start_pods(world, running=False)

    settled(world.later(FORGOTTEN_S + 1))

    assert world.gangs["llm-uid"].mark.woken is msgspec.UNSET  # type: ignore[union-attr]


def test_pods_that_were_told_to_end_are_no_reason() -> None:
    world = stopped_in_vain()
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, deleting_since=world.now)

    settled(world.later(FORGOTTEN_S + 1))

    assert world.gangs["llm-uid"].mark.woken is msgspec.UNSET  # type: ignore[union-attr]


def test_a_refused_change_is_not_sent_at_every_look() -> None:
    world = started_without_pods()
    settled(world.later(FORGOTTEN_S - 1))
    world.refused["pytorchjobs/ml/llm"] = Refusal(at=world.now, words="denied", may_pass=False)

    assert WOKE not in acts(look(world.later(2)))
    assert WOKE in acts(look(world.later(10)))


def test_a_gang_whose_ranks_all_run_is_left_alone() -> None:
    world = started_without_pods()
    start_pods(world)
    step(world)

    assert all(pod.phase is PodPhase.RUNNING for pod in world.pods["llm-uid"].values())
    assert WOKE not in acts(look(world.later(FORGOTTEN_S + 1)))
