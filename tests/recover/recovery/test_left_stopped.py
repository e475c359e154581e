"""If a person deletes the Recovery of a stopped gang, Rekindle reports this on the job once, and leaves
the decision to a person."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.k8s.kinds import RECOVERIES
from recover.model import Mark, Refusal
from recover.model.actions import ConfirmGone, Emit, Ensure, Patch
from recover.model.modes import Mode
from recover.triage.plan import plan
from recover.workloads.patches import MARK, mark_of
from tests.acting import advanced, recovering
from tests.builders import Worlds, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import faulted, resumed


def left(to: Phase = Phase.CHOOSING) -> Worlds:
    world = faulted(checkpoint="/ckpt")
    advanced(world, to)
    world.recoveries.clear()
    return world


def told(world: Worlds) -> list[Emit]:
    found = plan(world.world(), world.settings, world.now).actions
    return [a for a in found if isinstance(a, Emit) and a.reason == EventReason.LEFT_STOPPED]


def test_a_job_whose_recovery_was_deleted_bears_one_event_with_the_command_that_starts_it() -> None:
    world = left()

    (chain,) = [
        c
        for c in plan(world.world(), world.settings, world.now).chains
        if any(isinstance(a, Emit) and a.reason == EventReason.LEFT_STOPPED for a in c)
    ]
    confirm, *environment, mark, event = chain
    assert isinstance(confirm, ConfirmGone)
    assert [action.what for action in environment] == ["take-checkpoint-back"] * 2
    assert confirm.name in event.message
    assert isinstance(mark, Patch)
    assert "spec" not in mark.body
    assert isinstance(event, Emit)
    assert event.warning
    assert "kubectl patch pytorchjob -n ml llm" in event.message
    recovering(world)

    assert told(world) == []
    assert world.gangs["llm-uid"].suspended
    assert not world.recoveries


def test_it_is_not_taken_up_again_by_itself_and_its_incident_says_why() -> None:
    world = left()
    recovering(world)
    recovering(world.later(30))

    assert not world.recoveries
    said = [r for i in world.incidents.values() for r in i.status.actions if r.reason == Reason.HELD]
    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    assert all(names(record.message, mark.recovery) for record in said)


def test_the_next_fault_after_a_person_started_it_is_recovered_as_any_other() -> None:
    world = left()
    recovering(world)
    world.change_gang(suspended=False)
    world.running(world.gangs["llm-uid"], first_node=4)
    recovering(world.later(60).crash(rank=0))

    assert len(world.recoveries) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"suspended": False},
        {"deleting": True},
        {"labels": {}},
        {"annotations": {"rekindle.dev/hold": "true"}},
    ],
)
def test_nothing_is_said_of_a_job_that_runs_goes_or_is_not_ours_to_write(change: dict[str, object]) -> None:
    assert told(left().change_gang(**change)) == []


def test_nothing_is_said_in_mode_observe_or_of_a_recovery_that_cannot_be_read() -> None:
    world = left()
    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    world.mode = Mode.OBSERVE
    assert told(world) == []
    world.mode = Mode.RECOVER
    world.unread = {RECOVERIES: {f"ml/{mark.recovery}"}}
    assert told(world) == []


def test_a_job_that_its_recovery_stops_right_now_is_not_left() -> None:
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)

    assert told(world) == []
    assert gang().mark is None


# --- changes that the recovery has made to the job ----------------------------------------------------------


def deleted_after_its_start() -> Worlds:
    world = resumed()
    world.recoveries.clear()
    return world


def written(world: Worlds) -> list[tuple[str, object]]:
    """Returns the plan's writes to the job and its ConfigMaps, with the mark that each leaves."""
    found = plan(world.world(), world.settings, world.now).actions
    return [
        (action.what, action.body["metadata"]["annotations"][MARK] if isinstance(action, Patch) else None)
        for action in found
        if isinstance(action, Ensure) or (isinstance(action, Patch) and action.name == "llm")
    ]


def test_a_job_that_runs_begins_at_its_newest_checkpoint_again_and_on_any_node() -> None:
    world = deleted_after_its_start()
    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    mark = msgspec.structs.replace(mark, avoided=("n1",))
    world.change_gang(mark=mark)

    assert [what for what, _ in written(world)] == ["take-checkpoint-back"] * 2 + ["mark-left"]
    assert told(world) == []

    world.change_gang(mark=msgspec.structs.replace(mark, did="left"))
    assert written(world) == [("lift-start", None)]

    world.change_gang(mark=None)
    assert written(world) == []


def test_a_job_that_is_left_stopped_keeps_its_mark_and_avoids_no_node() -> None:
    world = left()
    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    noted = msgspec.structs.replace(mark, did="left-stopped", suspected=("n3",))
    world.change_gang(mark=noted)

    ((what, kept),) = written(world)
    assert what == "lift-start"
    assert msgspec.json.decode(str(kept), type=Mark) == msgspec.structs.replace(noted, suspected=())

    world.change_gang(mark=msgspec.structs.replace(noted, suspected=()))
    assert written(world) == []

    world.change_gang(suspended=False)
    assert written(world) == [("lift-start", None)], "a person has started it"


def test_a_config_map_that_nobody_may_change_keeps_no_job_from_saying_that_it_is_left() -> None:
    world = left()
    world.refused["configmaps/ml/llm-rekindle-pytorchjob"] = Refusal(
        at=world.now, words="immutable", may_pass=False
    )

    assert [what for what, _ in written(world)] == ["take-checkpoint-back", "mark-left-stopped"]
    assert len(told(world)) == 1

    world.refused["configmaps/ml/llm-rekindle-pytorchjob"] = Refusal(
        at=world.now, words="overloaded", may_pass=True
    )
    assert [what for what, _ in written(world)] == ["take-checkpoint-back"] * 2 + ["mark-left-stopped"]


def test_a_recovery_that_only_the_cache_lacks_is_looked_for_before_anything_is_written() -> None:
    world = deleted_after_its_start()

    (chain,) = [
        chain
        for chain in plan(world.world(), world.settings, world.now).chains
        if any(action.what == "mark-left" for action in chain)
    ]

    assert isinstance(chain[0], ConfirmGone)


@pytest.mark.parametrize(
    "called",
    [
        "../../../../../../api/v1/namespaces/ml/configmaps/others",
        "../recoveries?watch=true",
        "x#0",
        "UPPER",
        "",
        "a" * 254,
    ],
)
def test_a_mark_that_names_what_no_recovery_can_be_called_is_none(called: str) -> None:
    """Anybody who may change the job can write such a mark. The controller would request this address from
    the API server with its own permissions, again and again."""
    world = left()
    mark = Mark(recovery=called, attempt=1, did="stopped")
    forged = mark_of({MARK: msgspec.json.encode(mark).decode()})
    world.change_gang(mark=forged)

    found = plan(world.world(), world.settings, world.now).actions

    assert forged is None
    assert not [a for a in found if isinstance(a, ConfirmGone) and a.name == called]
