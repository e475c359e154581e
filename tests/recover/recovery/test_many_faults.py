"""The fleet brake counts faults that the findings show now, and no list with a limited length loses a
cause."""

from __future__ import annotations

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api import IncidentPhase, Phase
from recover.api.reasons import Reason
from recover.recovery.advance import advance
from recover.recovery.context import CAUSES_MAX, bounded
from recover.triage.held_back import holds_back
from tests.acting import acts, advanced, apply, end_pods, recovering, start_pods
from tests.builders import cluster, gang


def test_the_brake_counts_nodes_that_had_an_open_incident_before_the_mass_fault() -> None:
    """The brake must not take the time of these Incidents, which is up to a day old, for the time of the
    fault."""
    world = cluster(nodes=100)
    for i in range(30):
        world.finding(on=f"n{i}", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
        recovering(world)
        world.later(3600)
    for i in range(30):
        world.finding(on=f"n{i}", code="xid-95", fault=Fault.MEMORY_DEGRADED)

    assert [i for i in world.decide().incidents if i.metadata.name.startswith("fleet-brake")]


def test_of_56_small_jobs_under_recovery_on_a_node_all_take_its_fault_up() -> None:
    """MIG allows seven devices on each of eight GPUs. An Incident keeps 32 affected gangs and 24 records."""
    world = cluster(nodes=100)
    names = [f"j{i:02}" for i in range(56)]
    for name in names:
        world.running(gang(name, ranks=1), first_node=0)
    recovering(world.finding(on="n0"))
    for key in list(world.recoveries):
        name = world.recoveries[key].spec.gang.name
        while world.recoveries[key].status.phase is not Phase.VERIFYING:
            found = advance(world.recoveries[key], world.world(), world.settings, world.now)
            apply(world, found)
            if "stop-gang" in acts(found):
                end_pods(world, name)
            if "start-gang" in acts(found):
                start_pods(world, name, first_node=1)
    world.later(30).finding(on="n1")
    for _ in range(3):
        recovering(world)
        for key in list(world.recoveries):
            apply(world, advance(world.recoveries[key], world.world(), world.settings, world.now))
    left = [r.spec.gang.name for r in world.recoveries.values() if r.status.attempt == 1]
    assert left == []


def test_a_fault_of_many_nodes_is_one_incident_that_names_them() -> None:
    world = cluster(nodes=100)
    for number in range(30):
        world.finding(on=f"n{number}")

    recovering(world)

    (brake,) = [i for i in world.incidents.values() if i.metadata.name.startswith("fleet-brake")]
    assert len(world.incidents) == 1
    assert brake.status.members == sorted(f"n{number}" for number in range(30))


def test_a_node_that_breaks_while_the_brake_is_in_force_joins_its_incident() -> None:
    world = cluster(nodes=100)
    for number in range(30):
        world.finding(on=f"n{number}")
    recovering(world)

    recovering(world.later(60).finding(on="n70"))

    (brake,) = world.incidents.values()
    assert "n70" in brake.status.members


def test_after_the_brake_its_members_are_taken_out_within_the_budgets() -> None:
    world = cluster(nodes=100)
    for number in range(30):
        world.finding(on=f"n{number}")
    recovering(world)

    recovering(recovering(world.later(world.settings.budgets.brake_window_s + 5)))

    assert sum(node.quarantine is not None for node in world.nodes.values()) == 5, "5 % of 100"
    phases = {holds_back(i): i.status.phase for i in world.incidents.values() if i.status.members}
    assert phases == {Reason.FLEET_BRAKE: IncidentPhase.CLOSED, Reason.BUDGET_EXHAUSTED: IncidentPhase.OPEN}


def test_a_gang_with_more_failures_of_its_own_than_there_is_room_for_is_not_stopped_for_an_old_one() -> None:
    """The spec and the status must drop the same causes: a cause that only the spec has is a new one."""
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    (recovery,) = world.recoveries.values()
    (cause,) = recovery.status.causes
    many = [msgspec.structs.replace(cause, incident=f"i{number}") for number in range(CAUSES_MAX + 1)]
    recovery = msgspec.structs.replace(
        recovery,
        spec=msgspec.structs.replace(recovery.spec, causes=many[-CAUSES_MAX:]),
        status=msgspec.structs.replace(recovery.status, causes=bounded(many)),
    )

    found = advance(recovery, world.world(), world.settings, world.now)

    assert acts(found) == []
