"""Stories in virtual time: agents that are pods, and what Rekindle believes about a node while its agent is
away."""

from __future__ import annotations

from chaos.cluster.containers import Exit
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.repairs import VISITOR
from chaos.simulated.setup import Setup
from recover.api import Blame, Phase
from recover.k8s.kinds import PODS
from recover.model.agent_readiness import AGENT_LABELS
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.simulate.telling import over

NAMESPACE = "rekindle-system"
PODS_OF_THE_CHART = Setup(settings=Settings(mode=Mode.RECOVER, agents_are_pods=True))


async def agent_comes(sim: Simulation, node: str) -> None:
    """Creates the agent's pod, and starts the agent itself if it does not run yet."""
    body = {
        "metadata": {"name": f"rekindle-agent-{node}", "labels": {**AGENT_LABELS, VISITOR: "1e9"}},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "rekindle"}],
        },
    }
    await sim.cluster.client("system:daemon-set").create(PODS, body, NAMESPACE)
    if node not in sim.agents:
        sim.start_agent(node)


async def agent_goes(sim: Simulation, node: str) -> None:
    sim.kill_agent(node)
    client = sim.cluster.client("system:daemon-set")
    await client.delete(PODS, f"rekindle-agent-{node}", namespace=NAMESPACE, grace_s=0)


async def training(sim: Simulation) -> list[str]:
    """Starts a gang that makes steps, watched by agents that are pods. Returns the nodes."""
    nodes = [f"n{number}" for number in range(1, sim.setup.nodes + 1)]
    for node in nodes:
        await agent_comes(sim, node)
    await sim.submit(Job())
    await sim.passes(65)
    return nodes


def blames(sim: Simulation) -> set[Blame]:
    return {incident.status.blame for incident in sim.incidents()}


def test_a_program_that_fails_under_living_agents_is_blamed() -> None:
    async def story(sim: Simulation) -> None:
        await training(sim)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: over(sim), within_s=120)
        assert blames(sim) == {Blame.APPLICATION}
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        await comes_to_rest(sim)

    play(story, PODS_OF_THE_CHART)


def test_without_the_agents_daemonset_nobody_is_blamed_and_the_gang_trains_again() -> None:
    async def story(sim: Simulation) -> None:
        for node in await training(sim):
            await agent_goes(sim, node)
        await sim.passes(5)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: bool(sim.recoveries()), within_s=60)
        await comes_to_rest(sim)
        assert blames(sim) == {Blame.UNKNOWN}
        assert "agent" in sim.incidents()[0].status.summary
        assert sim.cordoned() == []
        assert all(pod["status"]["phase"] == "Running" for pod in sim.pods())

    play(story, PODS_OF_THE_CHART)


def test_a_gpu_that_died_while_its_agent_was_replaced_is_found_when_it_is_back() -> None:
    async def story(sim: Simulation) -> None:
        await training(sim)
        await agent_goes(sim, "n2")
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: bool(sim.incidents()), within_s=30)
        assert blames(sim) == {Blame.UNKNOWN}, "the application is not blamed for what nobody has read yet"
        await agent_comes(sim, "n2")
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=60)
        await comes_to_rest(sim)

    play(story, PODS_OF_THE_CHART)


def test_agents_that_are_replaced_one_after_another_stop_nothing() -> None:
    async def story(sim: Simulation) -> None:
        for node in await training(sim):
            await agent_goes(sim, node)
            await sim.passes(3)
            await agent_comes(sim, node)
            await sim.passes(10)
        assert sim.incidents() == []
        assert sim.recoveries() == []
        assert sim.cordoned() == []

    play(story, PODS_OF_THE_CHART)


def test_where_agents_are_no_pods_none_is_missed() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: over(sim), within_s=120)
        assert blames(sim) == {Blame.APPLICATION}

    play(story)
