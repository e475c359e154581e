"""Three nodes and three ranks: the only free place is on the node that was avoided, once that node is healthy
again."""

from __future__ import annotations

import pytest

from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from recover.api import Phase
from tests.chaos.simulate.telling import HANGS_SOON, nodes_of


@pytest.mark.parametrize("boots_after_s", [60.0, 600.0, 3600.0])
def test_a_gang_goes_on_once_the_node_that_had_died_under_it_is_back(boots_after_s: float) -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(ranks=3, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.passes(boots_after_s)
        await sim.boot_node("n2")
        await sim.passes(7200)
        before = gang.step
        await sim.passes(600)
        assert gang.step > before, sim.tell()

    play(story, Setup(nodes=3))


def test_of_two_gangs_that_may_start_at_the_same_moment_one_starts() -> None:
    """Both wait until the pods on their dead nodes are gone, which is the same moment."""

    async def story(sim: Simulation) -> None:
        for name in ("llm", "bert"):
            await sim.submit(Job(name=name, ranks=3, rendezvous_s=60, annotations=HANGS_SOON))
        await sim.passes(65)
        for name in ("llm", "bert"):
            await sim.crash_node(min(nodes_of(sim, name)))
        await sim.passes(900)
        ended = {name: sim.recovery(name).status for name in ("llm", "bert")}
        assert sorted(status.phase for status in ended.values()) == [Phase.BLOCKED, Phase.SUCCEEDED], (
            sim.tell()
        )
        assert [status.uncounted for status in ended.values()] == [[], []]

    play(story, Setup(nodes=6))


def test_a_gang_goes_on_once_a_person_has_given_its_broken_node_back() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(ranks=3))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(1800)
        assert sim.recovery().status.phase is Phase.BLOCKED
        await sim.crash_node("n2")
        await sim.boot_node("n2")
        await sim.passes(60)
        await sim.person.uncordon("n2")
        await sim.passes(3600)
        before = gang.step
        await sim.passes(600)
        assert gang.step > before, sim.tell()

    play(story, Setup(nodes=3))
