"""REKINDLE_RESUME_FROM must not remain after the start for which it was set."""

from __future__ import annotations

import pytest

from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job, Kind, Storage
from recover.api import Phase
from recover.k8s.kinds import CONFIGMAPS
from tests.chaos.simulate.telling import over


@pytest.mark.parametrize("kind", Kind)
def test_hours_after_a_recovery_was_given_up_no_container_is_told_to_begin_from_its_checkpoint(
    kind: Kind,
) -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=kind, ranks=2, scanned=True, storage=Storage.CLAIM))
        await sim.passes(200)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.VERIFYING), within_s=60, every_s=0.01)
        await sim.person.suspend("llm", True)
        await sim.until(lambda: over(sim), within_s=60)
        assert sim.recovery().status.phase is Phase.ESCALATED
        await sim.person.suspend("llm", False)
        await sim.passes(4 * 3600)
        name = f"llm-rekindle-{kind.value}"
        told = sim.cluster.store.read(CONFIGMAPS, name, "ml").body["data"]
        assert "REKINDLE_RESUME_STEP" not in told, f"{told}, the newest is {gang.training.checkpoint_step}"

    play(story)
