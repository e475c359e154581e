"""Stories in virtual time: modes of pools and namespaces, through the controller's restarts, and the whole
service of a spare."""

from __future__ import annotations

import pytest

from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import NAMESPACE, Job
from chaos.simulated.people import PERSON
from chaos.simulated.setup import Setup
from recover.api import Outcome, Phase
from recover.k8s.kinds import NAMESPACES
from recover.model.modes import Mode
from recover.policy.settings import Budgets, LowerModes, Settings
from tests.chaos.simulate.telling import nodes_of, reasons, touched

POOL = Budgets().pool_label
OBSERVED = Settings(mode=Mode.RECOVER, modes=LowerModes(pools={"a": Mode.OBSERVE}))


async def say(sim: Simulation, mode: str | None) -> None:
    """Sets the mode as the owners of the namespace do."""
    body = {"metadata": {"annotations": {"rekindle.dev/mode": mode}}}
    await sim.cluster.client(PERSON).patch(NAMESPACES, NAMESPACE, body)


def test_a_pool_that_is_raised_acts_on_what_comes_and_never_on_what_was_seen_there_before() -> None:
    async def story(sim: Simulation) -> None:
        await sim.person.edit_node("n2", {"metadata": {"labels": {POOL: "a"}}})
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(10)
        assert reasons(sim, Outcome.WOULD) == {"ObserveMode"}

        sim.change_settings(Settings(mode=Mode.RECOVER))
        sim.truth.acting_since = sim.clock.now()
        await sim.restart_controller()
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert reasons(sim, Outcome.REFUSED) == {"StaleEvidence"}

        await sim.restart_controller()
        sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert sim.cordoned() == ["n2"]

    play(story, Setup(settings=OBSERVED))


@pytest.mark.parametrize("controller_lives", [True, False])
def test_a_namespace_that_ends_its_observation_is_not_restarted_for_what_was_before(
    controller_lives: bool,
) -> None:
    async def story(sim: Simulation) -> None:
        await say(sim, "observe")
        await sim.submit(Job())
        await sim.passes(65)
        sim.hang_rank(1)
        await sim.until(lambda: reasons(sim, Outcome.WOULD) == {"ObserveMode"}, within_s=3600)

        if not controller_lives:
            sim.kill_controller()
        await say(sim, None)
        sim.truth.acting_since = sim.clock.now()
        await sim.passes(5)
        if not controller_lives:
            await sim.start_controller()
        await sim.until(lambda: reasons(sim, Outcome.REFUSED) == {"StaleEvidence"}, within_s=60)
        await comes_to_rest(sim)

        assert touched(sim) == []

    play(story)


def test_a_gang_fills_the_cluster_again_with_the_spare_which_serves_until_its_node_is_back() -> None:
    async def story(sim: Simulation) -> None:
        await sim.person.label_spare("n4", is_spare=True)
        await sim.passes(5)
        await sim.submit(Job(ranks=3))
        await sim.passes(65)
        assert nodes_of(sim) == {"n1", "n2", "n3"}

        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert nodes_of(sim) == {"n1", "n3", "n4"}
        assert _taints(sim, "n4") == []

        await sim.person.uncordon("n2")
        await sim.passes(5)
        assert _taints(sim, "n4") == ["rekindle.dev/spare"]
        assert nodes_of(sim) == {"n1", "n3", "n4"}
        await comes_to_rest(sim)

    play(story, Setup(nodes=4))


def _taints(sim: Simulation, node: str) -> list[str]:
    return [taint["key"] for taint in sim.node(node)["spec"].get("taints", [])]
