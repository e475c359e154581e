"""When the brake ends, its Incident stays open for the nodes that no other Incident names yet. This
Incident keeps no brake in force."""

from __future__ import annotations

import msgspec

from detectors.wire.contract import Origin
from recover.api import Incident
from recover.api.reasons import Reason
from recover.model.actions import Create
from recover.triage.brake import Brake
from recover.triage.guard import Guard
from recover.triage.plan import plan
from tests.acting import acts, apply, recovering
from tests.builders import Worlds, cluster, gang
from tests.recover.triage.held_cases import limited, many, named, names, opened, struck

UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "validation-required"}


def braked(origin: Origin = Origin.KERNEL) -> Worlds:
    """Returns a cluster in which 40 of 1000 nodes engage the brake, with limits that leave room for all of
    them."""
    world = limited(brake_percent=3.0, quarantines_per_hour_max=100, quarantined_percent_max=100)
    for name in names(range(40)):
        world.finding(on=name, origin=origin)
    return recovering(recovering(world))


def window_s(world: Worlds) -> float:
    return world.settings.budgets.brake_window_s


def brakes(world: Worlds) -> tuple[Brake, ...]:
    """Returns the brakes that the guard finds in the Incidents alone."""
    return Guard.of(world.world(), (), world.settings, world.now).brakes


def of_brake(world: Worlds) -> Incident:
    (found,) = many(world, Reason.FLEET_BRAKE)
    return found


def with_one_silent(world: Worlds) -> str:
    """Lets the brake end while one of its nodes has no NodeHealth. Returns the name of this node."""
    silent = of_brake(world).status.members[0]
    del world.health[silent]
    recovering(recovering(world.later(window_s(world) + 5)))
    return silent


def test_it_stays_open_for_a_node_without_a_report() -> None:
    world = braked()

    silent = with_one_silent(world)

    assert of_brake(world).status.members == [silent]
    assert named(world) == {*names(range(40))}
    assert acts(world.decide().plan) == []


def test_it_stays_open_for_a_node_whose_driver_is_worked_on() -> None:
    world = braked(Origin.DRIVER).change_node("n3", labels=UPGRADE)

    recovering(recovering(world.later(window_s(world) + 5)))

    assert of_brake(world).status.members == ["n3"]


def test_it_stays_open_for_a_node_that_is_only_absent_from_the_cache() -> None:
    world = braked()
    absent = world.nodes.pop("n3")

    recovering(world.later(window_s(world) + 5))
    assert "n3" in named(world)

    world.gone_nodes.discard("n3")
    world.nodes["n3"] = absent
    recovering(recovering(world.later(5)))
    assert "n3" in named(world)


def test_a_deleted_node_leaves_it_once_that_is_proven() -> None:
    world = braked().without_node("n3")

    recovering(recovering(world.later(window_s(world) + 5)))

    assert many(world, Reason.FLEET_BRAKE) == []


def test_it_closes_when_the_report_is_there_again() -> None:
    world = braked()
    reports = dict(world.health)
    silent = with_one_silent(world)

    world.health[silent] = reports[silent]
    recovering(recovering(world.later(5)))

    assert many(world, Reason.FLEET_BRAKE) == []
    assert silent in {i.spec.node for i in opened(world)}


def test_it_closes_when_the_node_is_sound() -> None:
    world = braked()
    silent = with_one_silent(world)

    world.health[silent] = cluster(nodes=40).health[silent]
    recovering(world.later(5))

    assert many(world, Reason.FLEET_BRAKE) == []


def test_it_stays_open_until_the_incidents_of_its_nodes_are_seen() -> None:
    """The API server may refuse these Incidents, and accept the close of the brake's Incident."""
    world = braked()
    decided = plan(world.later(window_s(world) + 5).world(), world.settings, world.now)
    accepted = [chain for chain in decided.chains if not any(isinstance(act, Create) for act in chain)]

    apply(world, msgspec.structs.replace(decided, chains=tuple(accepted)))

    assert named(world) == {*names(range(40))}
    recovering(recovering(world))
    assert many(world, Reason.FLEET_BRAKE) == []
    assert named(world) == {*names(range(40))}


def test_an_incident_that_stays_open_keeps_no_brake_in_force() -> None:
    world = braked()
    silent = with_one_silent(world)

    for _ in range(3):
        assert brakes(world) == ()
        recovering(world.later(window_s(world)))

    assert of_brake(world).status.members == [silent]
    assert world.finding(on="n70").decide().cordons == ["n70"]
    assert sum(1 for node in world.nodes.values() if node.unschedulable) == 39, "all that are known"


def test_a_new_brake_has_an_incident_of_its_own_that_is_remembered() -> None:
    world = braked()
    silent = with_one_silent(world)

    recovering(recovering(struck(world.later(window_s(world)), range(100, 140))))

    old, new = sorted(many(world, Reason.FLEET_BRAKE), key=lambda one: one.spec.detected_at)
    assert old.status.members == [silent]
    assert new.status.members == names(range(100, 140))
    (brake,) = brakes(world)
    assert brake.since == new.spec.detected_at
    world.later(window_s(world) + 5)
    assert brakes(world) == (), "neither is in force any more"


def test_a_node_that_reports_again_moves_to_the_incident_of_the_new_brake() -> None:
    world = braked()
    reports = dict(world.health)
    silent = with_one_silent(world)
    recovering(struck(world.later(window_s(world)), range(100, 140)))

    world.health[silent] = reports[silent]
    recovering(recovering(recovering(world.later(5))))

    assert silent in of_brake(world).status.members
    assert {*names(range(40)), *names(range(100, 140))} == named(world)


def test_a_brake_that_goes_on_has_one_incident_for_each_window_at_most() -> None:
    """About 40 nodes count at a time, and the first of them soon stop counting, so the brake's beginning
    moves with the clock."""
    world = limited(brake_percent=3.0)
    looks, every_s = 60, 20
    for look in range(looks):
        recovering(struck(world.later(every_s), range(4 * look, 4 * look + 4)))

    found = [i for i in world.incidents.values() if i.metadata.name.startswith("fleet-brake-")]
    assert len(found) <= 1 + looks * every_s / window_s(world)
    assert named(world) == {*names(range(4 * looks))}


def test_what_it_says_of_gangs_stays_with_it() -> None:
    world = limited(brake_percent=3.0).running(gang(ranks=1, opted_in=False), first_node=20)
    recovering(recovering(struck(world, range(40))))
    before = of_brake(world).status

    del world.health["n20"]
    recovering(recovering(world.later(window_s(world) + 5)))

    assert of_brake(world).status.members == ["n20"]
    assert of_brake(world).status.victims == before.victims != []
    assert of_brake(world).status.actions == before.actions != []
