"""During and after a pause, the nodes that one Incident names stay in one Incident, which names the
present reason why they stay in service."""

from __future__ import annotations

from recover.api.reasons import Reason
from recover.model.pause import Pause
from recover.triage.held_back import refusals
from tests.acting import acts, recovering
from tests.builders import Worlds, gang
from tests.recover.triage.held_cases import limited, many, named, names, opened, struck


def pausing(world: Worlds) -> Worlds:
    world.paused = Pause(since=world.now, by="ann", reason="new switches")
    return recovering(recovering(world.later(60)))


def resuming(world: Worlds) -> Worlds:
    world.paused, world.resumed = None, world.now
    return recovering(recovering(world.later(60)))


def test_a_pause_makes_no_incident_for_each_node() -> None:
    world = recovering(struck(limited(), range(300)))
    before = len(opened(world))

    pausing(world)
    assert len(opened(world)) == before
    assert named(world) == {*names(range(300))}

    resuming(world)
    assert len(opened(world)) == before
    assert named(world) == {*names(range(300))}


def test_the_incident_says_what_holds_the_nodes_back_now() -> None:
    world = pausing(recovering(struck(limited(), range(30))))

    (paused,) = many(world, Reason.PAUSED)
    assert "Rekindle is paused by ann" in paused.status.summary
    assert "new switches" in paused.status.summary
    assert {record.reason for record in refusals(paused)} == {Reason.PAUSED}
    assert many(world) == []

    resuming(world)

    (stale,) = many(world, Reason.STALE_EVIDENCE)
    assert "before the pause ended" in stale.status.summary
    assert many(world, Reason.PAUSED) == []


def test_nothing_is_written_while_nothing_changes() -> None:
    world = pausing(recovering(struck(limited(), range(30))))
    assert acts(world.later(60).decide().plan) == []

    resuming(world)
    assert acts(world.later(60).decide().plan) == []


def test_a_fault_that_goes_on_after_the_pause_joins_those_that_the_limit_holds_back() -> None:
    world = resuming(pausing(recovering(struck(limited(), range(30)))))

    recovering(recovering(struck(world.later(120), range(30))))

    (held,) = many(world)
    assert len(held.status.members) == 29
    assert many(world, Reason.STALE_EVIDENCE) == []
    assert named(world) == {*names(range(30))}


def test_a_node_that_breaks_in_the_pause_has_an_incident_of_its_own() -> None:
    world = pausing(recovering(struck(limited(), range(30))))

    recovering(struck(world, [70]))

    assert "n70" in {i.spec.node for i in opened(world)}


def test_the_nodes_of_a_brake_that_ends_in_the_pause_stay_together() -> None:
    world = recovering(recovering(struck(limited(brake_percent=3.0), range(40))))

    pausing(world)
    recovering(recovering(world.later(world.settings.budgets.brake_window_s)))

    (paused,) = many(world, Reason.PAUSED)
    assert opened(world) == [paused]
    assert paused.status.members == names(range(40))


def test_a_member_of_which_nobody_knows_stays_named() -> None:
    world = recovering(struck(limited(), range(30)))
    (silent, *_) = many(world)[0].status.members
    del world.health[silent]

    assert silent in named(pausing(world))
    assert silent in named(resuming(world))


def test_what_is_not_done_for_a_gang_in_the_pause_is_told_there() -> None:
    world = limited().running(gang(ranks=1, opted_in=False), first_node=20)
    pausing(recovering(struck(world, range(30))))

    (paused,) = many(world, Reason.PAUSED)
    assert [victim.name for victim in paused.status.victims] == ["llm"]
    assert [r.reason for r in paused.status.actions] == [Reason.NOT_OPTED_IN]
