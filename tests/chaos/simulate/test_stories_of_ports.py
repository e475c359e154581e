"""Stories in virtual time: a port loses its link under a rank, and no kernel prints anything about it."""

from __future__ import annotations

import pytest

from chaos.cluster.containers import Exit
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Job
from recover.api import Blame, Phase
from tests.chaos.simulate.telling import nodes_of

LOOKS_S = 15.0
TIMEOUT = (
    "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE) ran for "
    "600000 milliseconds before timing out."
)
REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, remote process exited or "
    "there was a network error, NCCL version 2.21.5 ncclRemoteError"
)
WITHOUT_NAME = "RuntimeError: NCCL error"


async def until_a_look(sim: Simulation) -> None:
    """Waits until just after the agents have sampled their ports."""
    await sim.passes(LOOKS_S - sim.clock.now().timestamp() % LOOKS_S + 0.5)


@pytest.mark.parametrize("after_look_s", [0.0, 5.0, 12.0])
@pytest.mark.parametrize("last_words", [TIMEOUT, REMOTE, WITHOUT_NAME], ids=["timeout", "remote", "no name"])
def test_ranks_that_die_of_a_lost_link_before_it_is_confirmed_blame_the_node_of_that_port(
    last_words: str, after_look_s: float
) -> None:
    """All ranks end 10 s after the link is lost, long before the port counts as dead. The gang starts again
    meanwhile."""

    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        sim.plug_in()
        await sim.passes(65)
        await until_a_look(sim)
        await sim.passes(after_look_s)
        sim.lose_link("n2")
        await sim.passes(10)
        for rank in reversed(range(gang.job.ranks)):
            sim.crash_rank(rank, Exit.by_signal(6), says=last_words.format(rank))
        await comes_to_rest(sim)

        assert sim.cordoned() == ["n2"]
        assert "n2" not in nodes_of(sim)
        assert sim.recoveries()[-1].status.phase is Phase.SUCCEEDED
        (fault,) = (i for i in sim.incidents() if i.spec.node)
        assert (fault.spec.node, fault.status.blame) == ("n2", Blame.NODE)
        for own in (i for i in sim.incidents() if i.spec.gang is not None):
            assert (own.status.superseded_by, own.status.blamed_node) == (fault.metadata.name, "n2")

    play(story)
