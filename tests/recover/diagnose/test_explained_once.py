"""A fault that only degrades its node explains the failure of the start that met the fault, and of no
later start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api import Blame, Incident, Phase
from recover.diagnose.coverage import looked_at
from recover.triage.plan import plan
from tests.acting import acts, apply, end_pods, first_step, only_recovery, recovering, start_pods, step
from tests.builders import Worlds, cluster, gang

HELD = {"rekindle.dev/hold": "true"}
CONTAINED: dict[str, Any] = {
    "code": "xid-94",
    "fault": Fault.MEMORY_DEGRADED,
    "severity": Severity.PENDING,
}
DEAD: dict[str, Any] = {"code": "xid-79", "fault": Fault.DEVICE_LOST}
NODE, PROGRAM = (Blame.NODE, "n1"), (Blame.APPLICATION, "")
AGAIN = (Blame.APPLICATION, "n1")
"""The program, which failed there the time before, too: the restart prefers other nodes."""


def on_held_node() -> Worlds:
    """Returns a gang with one rank on n1, which Rekindle may not take out of service."""
    return cluster(nodes=8).running(gang()).change_node("n1", annotations=HELD)


def looked(world: Worlds) -> list[str]:
    """Runs triage and the recovery once. Returns what they wrote, without Events."""
    found = plan(world.world(), world.settings, world.now)
    apply(world, found)
    wrote = [*acts(found), *step(world)]
    if "stop-gang" in wrote:
        end_pods(world)
    return wrote


def crashed(world: Worlds) -> Worlds:
    """Lets the rank on n1 fail. Half a minute later all ranks run again, each where it ran before."""
    world.later(5).crash(rank=1)
    looked(world)
    while only_recovery(world).status.phase is not Phase.VERIFYING:
        if "start-gang" in looked(world):
            start_pods(world.later(30), first_node=0)
    return world


def told(world: Worlds, at: datetime) -> Worlds:
    """Lets the agent of n1 report only now that n1 showed a contained error at this time."""
    return world.finding(on="n1", ago_s=(world.now - at).total_seconds(), **CONTAINED)


def blamed(world: Worlds) -> list[tuple[Blame, str]]:
    """Returns the culprit that the Recovery now names for each cause."""
    looked(world)
    return [(cause.blame, cause.node) for cause in only_recovery(world).status.causes]


def own_incidents(world: Worlds) -> list[Incident]:
    own = [incident for incident in world.incidents.values() if incident.spec.gang is not None]
    return sorted(own, key=lambda incident: incident.spec.detected_at)


def test_a_contained_error_explains_no_crash_of_a_start_that_came_after_it() -> None:
    world = crashed(on_held_node().finding(on="n1", **CONTAINED))

    assert blamed(crashed(crashed(world))) == [NODE, PROGRAM, AGAIN]
    assert [incident.status.superseded_by for incident in own_incidents(world)] == ["", ""]


def test_a_contained_error_explains_no_crash_after_its_recovery_has_succeeded() -> None:
    world = crashed(on_held_node().finding(on="n1", **CONTAINED))
    first_step(world, 101)
    looked(world)
    (first,) = world.recoveries.values()
    assert first.status.phase is Phase.SUCCEEDED

    recovering(recovering(world.later(5).crash(rank=1)))

    (own,) = own_incidents(world)
    assert (own.status.blame, own.status.superseded_by) == (Blame.APPLICATION, "")
    causes = [[cause.node for cause in recovery.spec.causes] for recovery in world.recoveries.values()]
    assert causes == [["n1"], [""]]


def test_the_words_about_a_node_with_a_known_fault_are_not_those_about_a_healthy_node() -> None:
    healthy, degraded = on_held_node(), on_held_node().finding(on="n1", **CONTAINED)

    assert looked_at(healthy.world(), "n1") != looked_at(degraded.world(), "n1")


def test_a_contained_error_that_is_shown_again_explains_the_next_crash_as_well() -> None:
    world = crashed(on_held_node().finding(on="n1", **CONTAINED))

    world.later(40).finding(on="n1", **CONTAINED)

    assert blamed(crashed(world)) == [NODE, NODE]


def test_a_contained_error_that_goes_on_explains_the_next_crash_as_well() -> None:
    world = crashed(on_held_node().finding(on="n1", **CONTAINED)).later(40)

    health = world.health["n1"]
    (finding,) = health.status.findings
    finding = msgspec.structs.replace(finding, last_seen=world.now, count=9)
    status = msgspec.structs.replace(health.status, findings=[finding])
    world.health["n1"] = msgspec.structs.replace(health, status=status)

    assert blamed(crashed(world)) == [NODE, NODE]


def test_a_dead_gpu_that_stays_in_service_explains_each_crash_on_its_node() -> None:
    world = crashed(on_held_node().finding(on="n1", **DEAD))

    assert blamed(crashed(world)) == [NODE, NODE]


def test_a_contained_error_that_becomes_fatal_explains_the_next_crash_as_well() -> None:
    world = crashed(on_held_node().finding(on="n1", **CONTAINED))

    world.later(5).finding(on="n1", **DEAD)

    assert set(blamed(crashed(world))) == {NODE}


def test_a_contained_error_that_is_told_late_explains_the_crash_beside_it_and_not_the_next_one() -> None:
    world = on_held_node()
    at = world.now
    crashed(crashed(world))

    assert blamed(told(world, at)) == [NODE, AGAIN]


def test_a_contained_error_that_was_told_late_explains_no_crash_that_comes_after_that() -> None:
    world = on_held_node()
    at = world.now
    assert blamed(told(crashed(world), at)) == [NODE]

    assert blamed(crashed(world)) == [NODE, PROGRAM]
