"""A gang hangs before its first step. Earlier, nothing detected this hang."""

from __future__ import annotations

from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Job
from tests.chaos.simulate.telling import HANGS_SOON


def test_a_gang_that_trained_before_and_hangs_in_its_next_start_is_noticed() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(ranks=3, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.person.suspend("llm", True)
        await sim.passes(60)
        gang.silent = True
        await sim.person.suspend("llm", False)
        await sim.passes(6 * 3600)
        assert sim.incidents(), "six hours without a step, and a hang-timeout of 60 s"

    play(story)
