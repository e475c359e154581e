"""The first stop follows the write of the phase at once, because the Recovery has announced the stop.
After a crash either write may be missing."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from recover.model import Mark, Refusal, Terminal
from recover.model.actions import Plan
from tests.acting import acts, apply, end_pods, look, only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang
from tests.recover.recovery.phase_cases import faulted


def written(world: Worlds, what: str) -> Worlds:
    """Applies only this write of the first reconcile pass, and the writes after it in its chain, as if the
    controller then crashed."""
    (chain,) = (chain for chain in look(world).chains if what in acts(Plan((chain,))))
    apply(world, Plan((chain,)))
    return world


def test_the_stop_waits_for_no_write_but_that_of_the_recovery() -> None:
    stop, status = look(faulted()).chains

    assert acts(Plan((stop,))) == ["stop-gang"]
    assert acts(Plan((status,))) == ["recovery-stopping"]


def test_a_stop_without_its_phase_is_not_repeated_and_the_phase_is_written_whatever_people_wish_since() -> (
    None
):
    world = written(faulted(), "stop-gang")
    end_pods(world)
    world.later(20).change_gang(labels={"rekindle.dev/auto-recovery": "disabled"})

    assert step(world) == ["recovery-stopping"]
    assert only_recovery(world).status.phase is Phase.STOPPING
    assert step(world) == ["recovery-resuming"]


def test_what_only_the_pods_told_is_known_after_a_crash_that_their_end_has_followed() -> None:
    world = cluster(nodes=8).running(gang()).crash(rank=1)
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, priority=7)
    written(recovering(world), "stop-gang")
    end_pods(world)

    step(world.later(20))

    assert only_recovery(world).status.priority == 7


def test_a_phase_without_its_stop_is_followed_by_the_stop() -> None:
    world = written(faulted(), "recovery-stopping")

    assert step(world) == ["stop-gang"]
    assert step(world) == []


def test_a_job_that_somebody_has_started_again_before_the_phase_was_written_is_left_to_them() -> None:
    world = written(faulted(), "stop-gang")
    world.change_gang(suspended=False)

    step(world)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER)


@pytest.mark.parametrize(
    "change",
    [
        {"suspended": True},
        {"terminal": Terminal(succeeded=False)},
        {"mark": Mark(recovery="another", attempt=1, did="stopped"), "suspended": True},
    ],
    ids=["suspended by somebody", "failed for good", "stopped by another recovery"],
)
def test_a_job_that_needs_more_than_a_stop_gets_its_phase_first(change: dict[str, object]) -> None:
    world = faulted()
    world.change_gang(**change)

    assert "stop-gang" not in acts(look(world))


def test_a_stop_that_was_refused_before_is_tried_only_in_its_phase_which_tells_of_it() -> None:
    world = faulted()
    world.refused["pytorchjobs/ml/llm"] = Refusal(world.now, "denied by policy", may_pass=False)

    assert step(world) == ["recovery-stopping"]


def test_consent_that_is_withdrawn_before_the_first_look_stops_nothing() -> None:
    world = faulted()
    world.change_gang(labels={"rekindle.dev/auto-recovery": "disabled"})

    assert step(world) == ["recovery-failed"]
