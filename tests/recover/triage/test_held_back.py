"""Tests one Incident for many nodes that a limit or the brake keeps in service: it names each of them."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault
from recover.api import ActionRecord, Outcome
from recover.api.reasons import Reason
from recover.model.actions import Create, Patch
from recover.runtime.execute import ALARMS
from recover.triage.held_back import refusals
from recover.triage.held_back_incidents import gathered
from tests.acting import acts, recovering
from tests.builders import cluster, gang
from tests.recover.triage.held_cases import limited, many, named, names, opened, struck


def test_nodes_that_a_limit_keeps_in_service_are_one_incident_that_names_them() -> None:
    world = recovering(struck(limited(), range(30)))

    (held,) = many(world)
    (out,) = (i for i in opened(world) if i.spec.node)
    assert world.nodes[out.spec.node].unschedulable
    assert held.status.members == names(n for n in range(30) if f"n{n}" != out.spec.node)
    assert held.spec.fault is Fault.DEVICE_LOST


def test_its_writes_go_before_the_incidents_of_single_nodes() -> None:
    decided = struck(limited(), range(30)).decide()

    made = [a.what for a in decided.plan.actions if isinstance(a, Create) and a.name.startswith("quarantine")]
    assert made
    assert ALARMS.issuperset(made)


def test_fewer_nodes_have_an_incident_each_that_says_more() -> None:
    world = recovering(struck(limited(), range(5)))

    assert many(world) == []
    assert sorted(i.spec.node for i in opened(world)) == names(range(5))


def test_nodes_that_break_a_few_at_a_time_are_one_incident_as_well() -> None:
    world = limited()
    for number in range(0, 40, 2):
        recovering(struck(world.later(0.1), [number, number + 1]))

    assert len(opened(world)) <= 1 + 4 + 1, "the one that is out, fewer than five, and one for the rest"
    assert named(world) == {*names(range(40))}


def test_a_node_that_is_refused_later_joins_while_the_incident_is_open() -> None:
    world = recovering(struck(limited(), range(30)))

    recovering(struck(world.later(60), [70]))

    (held,) = many(world)
    assert "n70" in held.status.members
    assert len(opened(world)) == 2


def test_a_node_with_an_incident_of_its_own_goes_on_there() -> None:
    world = recovering(struck(limited(), range(3)))

    recovering(struck(world.later(10), range(3, 30)))

    (held,) = many(world)
    assert not {"n0", "n1", "n2"} & {*held.status.members}
    assert named(world) == {*names(range(30))}


def test_each_fault_class_has_its_own() -> None:
    world = struck(limited(), range(10))
    recovering(struck(world, range(20, 30), Fault.MEMORY_DEGRADED))

    members = {i.fault: len(i.status.members) for i in many(world)}
    assert members == {Fault.DEVICE_LOST: 9, Fault.MEMORY_DEGRADED: 10}


def test_each_look_says_the_same_until_the_first_answer() -> None:
    """The next reconcile pass begins before the cache shows the writes of the last one."""
    world = struck(limited(), range(30))
    before = {a.name for a in world.decide().plan.actions if isinstance(a, Create) and a.what in ALARMS}

    struck(world.later(1), range(40, 50))
    world.finding(on="n60", ago_s=30)
    after = {a.name for a in world.decide().plan.actions if isinstance(a, Create) and a.what in ALARMS}

    assert before == after


def test_nothing_is_written_while_nothing_changes() -> None:
    world = recovering(recovering(struck(limited(), range(30))))

    decided = world.later(60).decide()

    assert acts(decided.plan) == []
    assert 0 < (decided.plan.requeue_after_s or 0) <= 60, "the limit is asked again"


def test_a_member_for_which_the_limit_leaves_room_is_taken_out_with_an_incident_of_its_own() -> None:
    world = recovering(struck(limited(), range(30)))
    before = {node.name for node in world.nodes.values() if node.unschedulable}

    recovering(recovering(world.later(3700)))

    (new,) = {node.name for node in world.nodes.values() if node.unschedulable} - before
    (held,) = many(world)
    assert new not in held.status.members
    assert new in {i.spec.node for i in opened(world)}
    assert named(world) == {*names(range(30))}


def test_a_member_stays_until_its_own_incident_is_seen() -> None:
    """Both Incidents are written at once, and the API server may refuse either write."""
    world = recovering(struck(limited(), range(30))).later(3700)

    decided = world.decide()

    (new,) = decided.cordons
    patches = [a for a in decided.plan.actions if isinstance(a, Patch) and a.what == "name-members"]
    assert not any(new not in p.body["status"].get("members", [new]) for p in patches)


def test_it_closes_when_no_limit_holds_a_node_back() -> None:
    world = recovering(struck(limited(), range(30)))
    budgets = msgspec.structs.replace(
        world.settings.budgets, quarantines_per_hour_max=100, quarantined_percent_max=100.0
    )
    world.settings = msgspec.structs.replace(world.settings, budgets=budgets)

    recovering(recovering(world.later(60)))

    assert many(world) == []
    assert len(opened(world)) == 30
    assert acts(world.decide().plan) == []


def test_a_node_that_is_sound_again_leaves_it() -> None:
    world = recovering(struck(limited(), range(30)))
    (gone, *_) = many(world)[0].status.members

    world.health[gone] = cluster(nodes=30).health[gone]
    recovering(world.later(60))

    (held,) = many(world)
    assert len(held.status.members) == 28
    assert gone not in held.status.members


def test_a_node_of_which_nobody_knows_stays_named() -> None:
    """The node's NodeHealth was deleted, and the agent has not reported since."""
    world = recovering(struck(limited(), range(30)))
    (silent, *_) = many(world)[0].status.members

    del world.health[silent]
    recovering(world.later(60))

    (held,) = many(world)
    assert silent in held.status.members


def test_a_deleted_node_leaves_it_once_that_is_proven() -> None:
    world = recovering(struck(limited(), range(30)))
    (gone, *_) = many(world)[0].status.members
    del world.nodes[gone], world.health[gone]

    recovering(world.later(60))
    assert gone in many(world)[0].status.members, "the cache alone proves nothing"

    assert gone in world.gone_nodes, "the API server was asked"
    recovering(world.later(60))
    assert gone not in many(world)[0].status.members


def test_the_incident_of_a_brake_that_trips_later_takes_over_all() -> None:
    world = recovering(struck(limited(brake_percent=3.0), range(20)))
    (limit,) = many(world)

    recovering(struck(world.later(5), range(20, 40)))
    assert named(world) >= {*names(range(40))}
    recovering(world)

    (brake,) = many(world, Reason.FLEET_BRAKE)
    assert {*brake.status.members} >= {*limit.status.members}
    assert many(world) == []
    assert named(world) >= {*names(range(40))}


def test_after_the_brake_the_limit_has_an_incident_again() -> None:
    world = recovering(struck(limited(brake_percent=3.0), range(20)))
    recovering(recovering(struck(world.later(5), range(20, 40))))

    recovering(recovering(world.later(world.settings.budgets.brake_window_s + 5)))

    assert many(world, Reason.FLEET_BRAKE) == []
    (held,) = many(world)
    assert named(world) >= {*names(range(40))}
    assert len(held.status.members) > 30


def test_a_node_with_another_fault_than_the_brake_s_has_an_incident_of_its_own() -> None:
    """The brake of one class keeps every node in service, and its Incident is about nodes of this class."""
    world = struck(cluster(nodes=100), range(30))
    recovering(struck(world, [70], Fault.DRIVER))

    (own,) = (i for i in opened(world) if i.spec.node == "n70")
    assert [r.reason for r in own.status.actions] == [Reason.FLEET_BRAKE]


def test_a_gang_that_is_restarted_makes_its_node_an_incident_of_its_own() -> None:
    world = limited().running(gang(ranks=1), first_node=20)
    decided = struck(world, range(30)).decide()

    assert decided.restarts == ["llm"]
    (own,) = (i for i in decided.incidents if i.spec.node == "n20")
    assert {r.outcome for r in own.status.actions if r.action == "restart-gang"} == {Outcome.DONE}


def test_what_is_refused_of_a_gang_is_told_there() -> None:
    world = limited().running(gang(ranks=1, opted_in=False), first_node=20)
    recovering(struck(world, range(30)))

    (held,) = many(world)
    assert "n20" in held.status.members
    assert [victim.name for victim in held.status.victims] == ["llm"]
    assert [(r.action, r.reason) for r in held.status.actions] == [("restart-gang", Reason.NOT_OPTED_IN)]


def test_a_node_whose_gang_has_no_more_room_there_has_an_incident_of_its_own() -> None:
    world = limited()
    for number in range(30):
        world.running(gang(f"j{number}", ranks=1, opted_in=False), first_node=number)
    recovering(struck(world, range(30)))

    told = {v.name for i in opened(world) for v in i.status.victims}
    assert told == {f"j{number}" for number in range(30)}
    assert {r.target for i in opened(world) for r in i.status.actions if r.action == "restart-gang"} == {
        f"PyTorchJob ml/j{number}" for number in range(30)
    }
    assert named(world) == {*names(range(30))}


@pytest.mark.parametrize("members", [4095, 4096])
def test_a_full_list_of_members_hides_no_node(members: int) -> None:
    world = recovering(struck(limited(), range(30)))
    (held,) = many(world)
    full = sorted({*held.status.members, *(f"x{number}" for number in range(members))})[:members]
    world.incidents[held.metadata.name] = msgspec.structs.replace(
        held, status=msgspec.structs.replace(held.status, members=full)
    )

    recovering(struck(world.later(10), [500]))

    assert "n500" in named(world)


def test_each_member_stands_for_one_refusal() -> None:
    world = recovering(struck(limited(), range(30)))
    (held,) = many(world)

    found: list[ActionRecord] = list(refusals(held))

    assert [record.target for record in found] == held.status.members
    assert {(record.outcome, record.reason) for record in found} == {
        (Outcome.REFUSED, Reason.BUDGET_EXHAUSTED)
    }


def test_the_summary_has_the_figures_of_the_limit() -> None:
    world = recovering(struck(limited(), range(30)))
    (held,) = many(world)
    own = recovering(struck(limited(), range(3)))
    (record, *_) = (r for i in opened(own) for r in i.status.actions if r.reason == Reason.BUDGET_EXHAUSTED)

    assert record.message in held.status.summary
    assert "29" in held.status.summary


def test_no_decision_makes_no_incident() -> None:
    world = limited()

    assert gathered(world.world(), (), {}, (), world.settings.budgets).groups == {}
