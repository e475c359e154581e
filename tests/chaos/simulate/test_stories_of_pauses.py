"""Stories in virtual time: people pause Rekindle and resume it. Rekindle begins nothing meanwhile, and no job
stays stopped because of a pause."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chaos.cluster.containers import Exit
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from recover.api import Outcome, Phase
from recover.k8s.kinds import EVENTS
from tests.chaos.simulate.telling import nodes_of, reasons, touched


async def trains(sim: Simulation) -> None:
    await sim.submit(Job(ranks=2, lingers_s=5.0))
    await sim.passes(65)


@pytest.mark.parametrize("controller_lives", [True, False])
def test_a_fault_that_is_seen_in_a_pause_acts_neither_then_nor_after_it_unless_it_comes_again(
    controller_lives: bool,
) -> None:
    async def story(sim: Simulation) -> None:
        await trains(sim)
        await sim.person.pause(reason="maintenance")
        await sim.passes(20)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: reasons(sim, Outcome.WOULD) == {"Paused"}, within_s=30)
        await sim.restart_controller()
        await comes_to_rest(sim)
        assert touched(sim) == []

        if not controller_lives:
            sim.kill_controller()
        await sim.person.resume()
        if not controller_lives:
            await sim.start_controller()
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert reasons(sim, Outcome.REFUSED) == {"StaleEvidence"}

        sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert sim.cordoned() == ["n2"]

    play(story)


def test_a_job_that_fails_in_a_pause_is_restarted_after_it() -> None:
    async def story(sim: Simulation) -> None:
        await trains(sim)
        await sim.person.pause()
        await sim.passes(20)
        sim.crash_rank(0, Exit(1))
        await sim.passes(300)
        assert sim.recoveries() == []

        await sim.person.resume()
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)

    play(story)


@pytest.mark.parametrize("controller_lives", [True, False])
def test_a_job_that_is_stopped_when_the_pause_begins_is_started_in_the_pause(controller_lives: bool) -> None:
    async def story(sim: Simulation) -> None:
        await trains(sim)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(sim.is_suspended, within_s=60, every_s=0.01)
        if not controller_lives:
            sim.kill_controller()
        await sim.person.pause()
        if not controller_lives:
            await sim.start_controller()

        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert nodes_of(sim) == {"n1", "n3"}
        await comes_to_rest(sim)

    play(story, Setup(nodes=3))


def test_a_job_that_fails_before_its_recovery_has_ended_is_started_once_more_in_the_pause() -> None:
    async def story(sim: Simulation) -> None:
        await trains(sim)
        sim.crash_rank(0, Exit(1))
        await sim.until(sim.is_suspended, within_s=60, every_s=0.01)
        await sim.person.pause()
        await sim.until(lambda: sim.recovery_is(Phase.VERIFYING), within_s=60, every_s=0.01)
        await sim.passes(1)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert sim.recovery().status.attempt == 2

        await sim.passes(60)
        sim.crash_rank(1, Exit(1))
        await sim.passes(120)
        assert len(sim.recoveries()) == 1, "a failure after that waits for the resume"
        await sim.person.resume()
        await sim.until(lambda: len(sim.recoveries()) == 2 and sim.recovery_is(Phase.SUCCEEDED), 120)

    play(story)


def test_a_job_that_trains_again_is_not_stopped_in_the_pause_for_what_its_new_nodes_show() -> None:
    async def story(sim: Simulation) -> None:
        await trains(sim)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(sim.is_suspended, within_s=60, every_s=0.01)
        await sim.person.pause()
        await sim.until(lambda: sim.recovery_is(Phase.VERIFYING), within_s=60, every_s=0.01)
        sim.kernel("n1", lines.DOUBLE_BIT_ERROR)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        await sim.passes(60)
        assert sim.recovery().status.attempt == 1
        assert sim.cordoned() == ["n2"]

    play(story)


def test_a_stopped_job_gets_the_spare_that_it_needs_in_a_pause_and_no_spare_serves_anything_else() -> None:
    async def story(sim: Simulation) -> None:
        for spare in ("n3", "n4"):
            await sim.person.label_spare(spare, is_spare=True)
            await sim.person.cordon(spare)
        await sim.passes(5)
        await trains(sim)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.BLOCKED), within_s=60)
        await sim.person.pause()
        await sim.passes(20)
        for spare in ("n3", "n4"):
            await sim.person.uncordon(spare)

        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert nodes_of(sim) == {"n1", "n3"}
        await sim.person.uncordon("n2")
        await sim.passes(60)
        await sim.person.resume()
        await sim.until(lambda: "rekindle.dev/spare" in _taints(sim, "n3"), within_s=30)
        await comes_to_rest(sim)

    play(story, Setup(nodes=4))


def _taints(sim: Simulation, node: str) -> list[str]:
    return [taint["key"] for taint in sim.node(node)["spec"].get("taints", [])]


def test_a_pause_with_an_end_is_over_then_and_is_told_by_events() -> None:
    async def story(sim: Simulation) -> None:
        await trains(sim)
        until = sim.clock.now() + timedelta(seconds=200)
        await sim.person.pause(until=until.isoformat(), by="ann", reason="new switches", colour="red")
        await sim.passes(20)
        sim.crash_rank(0, Exit(1))
        await sim.passes(150)
        assert sim.recoveries() == []

        await sim.passes(35)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=60)
        events = [e for e in sim.cluster.store.objects(EVENTS) if e["regarding"]["name"] == "rekindle-pause"]
        assert [event["reason"] for event in events] == ["Paused", "Resumed"]
        assert "by ann" in events[0]["note"]
        assert "new switches" in events[0]["note"]
        assert "data.colour is not known" in events[0]["note"]

    play(story)
