"""Stories in virtual time: what happens while no controller runs, or while it cannot write."""

from __future__ import annotations

import pytest

from chaos.apiserver.disturbance import StandingRefusal
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from recover.api import IncidentPhase, Phase
from recover.api.repair_state import RepairPhase
from recover.k8s.kinds import EVENTS, NODES
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.simulate.telling import nodes_of

CLOCKS = [-600.0, -90.0, 0.0, 90.0, 600.0]
"""Seconds by which the clock of n2 is ahead."""


async def quarantined(sim: Simulation, node: str = "n2") -> None:
    sim.kernel(node, lines.FALLEN_OFF_THE_BUS)
    await sim.until(lambda: sim.cordoned() == [node], within_s=60)
    await sim.passes(30)


async def uncordoned_unseen(sim: Simulation) -> None:
    """Plays until a person has uncordoned n2, which is in quarantine, while no controller runs."""
    await sim.passes(700)
    await quarantined(sim)
    sim.kill_controller()
    await sim.passes(60)
    await sim.person.uncordon("n2")


def said(sim: Simulation, reason: str) -> list[str]:
    return [event["note"] for event in sim.cluster.store.objects(EVENTS) if event["reason"] == reason]


# --- a person ends a quarantine ---------------------------------------------------------------------------


@pytest.mark.parametrize("clock_s", CLOCKS)
@pytest.mark.parametrize("line", [lines.FALLEN_OFF_THE_BUS, lines.DOUBLE_BIT_ERROR])
def test_a_fault_after_an_uncordon_that_no_controller_saw_takes_the_node_out_again(
    line: lines.KernelText, clock_s: float
) -> None:
    async def story(sim: Simulation) -> None:
        await uncordoned_unseen(sim)
        await sim.passes(60)
        sim.kernel("n2", line)
        await sim.passes(1800)
        await sim.start_controller()
        await sim.passes(60)
        assert sim.cordoned() == ["n2"]
        (ended,) = said(sim, "NodeReleased")
        assert "These findings may be newer than the end of the quarantine" in ended
        first, second = sorted(sim.incidents(), key=lambda i: i.spec.detected_at)
        assert (first.status.phase, second.status.phase) == (IncidentPhase.CLOSED, IncidentPhase.OPEN)
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n2"]

        await sim.person.uncordon("n2")
        await comes_to_rest(sim)
        assert sim.cordoned() == []

    play(story, Setup(clock_leads_s={"n2": clock_s}))


@pytest.mark.parametrize("clock_s", CLOCKS)
def test_an_uncordon_that_no_controller_saw_answers_the_fault_that_its_incident_shows(clock_s: float) -> None:
    async def story(sim: Simulation) -> None:
        await uncordoned_unseen(sim)
        await sim.passes(1800)
        await sim.start_controller()
        await comes_to_rest(sim)
        assert sim.cordoned() == []
        assert [incident.status.phase for incident in sim.incidents()] == [IncidentPhase.CLOSED]

    play(story, Setup(clock_leads_s={"n2": clock_s}))


def test_a_fault_while_the_end_of_a_quarantine_cannot_be_written_takes_the_node_out_again() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(65)
        await quarantined(sim)
        refusal = StandingRefusal(why="a webhook refuses changes of nodes", verb="patch", resource=NODES)
        sim.client.disturbance.standing.append(refusal)
        await sim.person.uncordon("n2")
        await sim.passes(60)
        sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
        await sim.passes(600)
        assert sim.cordoned() == []
        sim.client.disturbance.standing.clear()
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n2"]

    play(story)


def test_a_gang_that_came_to_a_node_after_an_uncordon_leaves_it_if_the_node_breaks_again() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(65)
        await quarantined(sim)
        sim.kill_controller()
        await sim.person.uncordon("n2")
        await sim.person.untaint("n2")
        gang = await sim.submit(Job(ranks=4))
        await sim.passes(120)
        assert "n2" in nodes_of(sim)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        await sim.start_controller()
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n2"]
        assert [recovery.status.phase for recovery in sim.recoveries()] == [Phase.SUCCEEDED]
        assert "n2" not in nodes_of(sim)
        assert gang.step > 300

    play(story)


def test_an_unseen_uncordon_in_mid_repair_ends_that_repair_and_the_next_fault_gets_its_own() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=60)
        await sim.passes(5)
        sim.kill_controller()
        await sim.person.uncordon("n2")
        await sim.passes(60)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        await sim.start_controller()
        await comes_to_rest(sim)
        first, second = sorted(sim.incidents(), key=lambda i: i.spec.detected_at)
        assert first.status.repair is not None
        assert second.status.repair is not None
        assert first.status.repair.reason == "ReleasedByPerson"
        assert second.status.repair.phase is RepairPhase.RETURNED

    play(story, Setup(settings=Settings(mode=Mode.REPAIR)))


def test_a_fault_of_a_new_boot_that_its_agent_reports_after_the_uncordon_takes_the_node_out_again() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(65)
        await quarantined(sim)
        await sim.crash_node("n2")
        await sim.passes(60)
        await sim.boot_node("n2")
        sim.kill_agent("n2")
        await sim.passes(60)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        await sim.person.uncordon("n2")
        await sim.passes(120)
        assert sim.cordoned() == []
        sim.start_agent("n2")
        await comes_to_rest(sim)
        assert sim.cordoned() == ["n2"]

    play(story)
