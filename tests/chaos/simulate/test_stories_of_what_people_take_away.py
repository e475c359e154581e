"""Stories in virtual time: people delete Incidents while a node is quarantined for them, at any moment of its
repair, and faults continue after a person has returned the node to service.

Every invariant of chaos/simulate is checked after each write.
"""

from __future__ import annotations

import pytest

from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.people import PERSON
from chaos.simulated.setup import Setup
from recover.api import Incident, IncidentPhase
from recover.api.repair_state import RepairPhase
from recover.k8s.kinds import EVENTS, INCIDENTS
from recover.model.modes import Mode
from recover.policy.settings import Settings

REPAIR = Setup(settings=Settings(mode=Mode.REPAIR))
WORKING = [RepairPhase.RESETTING, RepairPhase.REBOOTING, RepairPhase.VALIDATING]
LINE = {
    RepairPhase.RESETTING: lines.DOUBLE_BIT_ERROR,
    RepairPhase.REBOOTING: lines.FALLEN_OFF_THE_BUS,
    RepairPhase.VALIDATING: lines.DOUBLE_BIT_ERROR,
}


def only(sim: Simulation) -> Incident:
    (incident,) = sim.incidents()
    return incident


def repaired(sim: Simulation) -> RepairPhase | None:
    found = [i.status.repair for i in sim.incidents()]
    return found[0].phase if found and found[0] is not None else None


async def deletes_incident(sim: Simulation) -> None:
    await sim.cluster.client(PERSON).delete(INCIDENTS, only(sim).metadata.name)


@pytest.mark.parametrize("phase", WORKING)
@pytest.mark.parametrize("controller_dies", [False, True])
def test_a_node_whose_incident_is_deleted_in_mid_repair_stays_out_until_a_repair_has_proved_it(
    phase: RepairPhase, controller_dies: bool
) -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        sim.kernel("n1", LINE[phase])
        await sim.until(lambda: repaired(sim) is phase, within_s=3600)
        before = only(sim)

        if controller_dies:
            sim.kill_controller()
        await deletes_incident(sim)
        if controller_dies:
            await sim.passes(30)
            assert sim.cordoned() == ["n1"]
            await sim.start_controller()
        await sim.until(lambda: len(sim.incidents()) == 1, within_s=60)
        assert only(sim).metadata.name == before.metadata.name
        assert only(sim).metadata.uid != before.metadata.uid
        assert sim.cordoned() == ["n1"]

        await comes_to_rest(sim)
        assert repaired(sim) is RepairPhase.RETURNED
        assert sim.cordoned() == []
        assert only(sim).status.phase is IncidentPhase.CLOSED

    play(story, REPAIR)


def test_an_incident_deleted_again_and_again_is_told_of_on_its_node_and_releases_nothing() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.cordoned() == ["n1"], within_s=60)
        for _ in range(5):
            await sim.passes(90)
            await deletes_incident(sim)
            await sim.until(lambda: len(sim.incidents()) == 1, within_s=60)
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n1"]
        told = [e for e in sim.cluster.store.objects(EVENTS) if e["reason"] == "IncidentRecreated"]
        assert [e["regarding"]["name"] for e in told] == ["n1"]

    play(story)


async def released_while_it_goes_on(sim: Simulation, *, for_s: float) -> None:
    """The kernel prints the fault every second, from before a person's uncordon until `for_s` seconds after
    it."""
    await sim.passes(5)
    for _ in range(60):
        sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(1)
    assert sim.cordoned() == ["n1"]
    await sim.person.uncordon("n1")
    for _ in range(int(for_s)):
        sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(1)


def test_a_fault_that_goes_on_after_an_uncordon_takes_the_node_out_again_within_ten_minutes() -> None:
    async def story(sim: Simulation) -> None:
        await released_while_it_goes_on(sim, for_s=720)
        assert sim.cordoned() == ["n1"]
        first, second = sorted(sim.incidents(), key=lambda i: i.spec.detected_at)
        assert (first.status.phase, second.status.phase) == (IncidentPhase.CLOSED, IncidentPhase.OPEN)
        assert f"{first.status.closed_at:%H:%M:%S}" in second.status.summary
        await comes_to_rest(sim)
        assert len(sim.incidents()) == 2

    play(story)


def test_a_fault_that_ended_with_an_uncordon_takes_nothing_out() -> None:
    async def story(sim: Simulation) -> None:
        await released_while_it_goes_on(sim, for_s=40)
        await comes_to_rest(sim)
        assert sim.cordoned() == []
        assert only(sim).status.phase is IncidentPhase.CLOSED

    play(story)


@pytest.mark.parametrize("served_s", [1, 15])
@pytest.mark.parametrize("pause_s", [1, 5, 20])
def test_a_fault_that_comes_again_right_after_an_uncordon_takes_the_node_out_again_at_once(
    pause_s: float, served_s: float
) -> None:
    """The GPU was not repaired. The same line came less than a minute ago."""

    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.cordoned() == ["n1"], within_s=10)
        await sim.passes(served_s)
        await sim.person.uncordon("n1")
        await sim.until(lambda: sim.cordoned() == [], within_s=10)
        await sim.passes(pause_s)

        sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)

        await sim.until(lambda: sim.cordoned() == ["n1"], within_s=10)
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n1"]

    play(story)


def test_an_agent_that_restarts_after_an_uncordon_takes_nothing_out_for_lines_from_before_it() -> None:
    """The kernel printed the fault every 3 s. The agent reads again the lines that it had not published."""

    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        for _ in range(4):
            sim.kernel("n1", lines.FALLEN_OFF_THE_BUS)
            await sim.passes(3)
        assert sim.cordoned() == ["n1"]
        await sim.person.uncordon("n1")
        await sim.passes(3)

        sim.kill_agent("n1")
        sim.start_agent("n1")
        await comes_to_rest(sim)

        assert sim.cordoned() == []
        assert only(sim).status.phase is IncidentPhase.CLOSED

    play(story)
