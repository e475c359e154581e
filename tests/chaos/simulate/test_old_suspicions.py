"""A gang trains for hours despite a finding of the class unknown, and then its program crashes."""

from __future__ import annotations

from chaos.cluster.containers import Exit
from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from tests.chaos.simulate.test_worse_fault_joins import PMU_BREAKPOINT


def test_on_a_full_cluster_a_gang_that_crashes_long_after_an_unknown_xid_is_started_again() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(ranks=3, step_s=10.0))
        await sim.passes(65)
        sim.kernel("n2", PMU_BREAKPOINT)
        await sim.passes(3 * 3600)
        before = gang.step
        sim.crash_rank(0, Exit(1), says="ValueError: shapes do not match")  # a rank on n1
        await sim.passes(7200)
        assert gang.step > before + 10, sim.tell()

    play(story, Setup(nodes=3))
