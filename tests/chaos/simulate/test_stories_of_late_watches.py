"""Watches of different kinds arrive in any order, and each may lag: an object that is not in a cache may
exist."""

from __future__ import annotations

import pytest

from chaos.cluster.containers import Exit
from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import NAMESPACE, Job, Kind
from chaos.simulated.lines import FALLEN_OFF_THE_BUS
from chaos.simulated.people import PERSON
from chaos.simulated.setup import Setup
from recover.api import Phase
from recover.k8s.kinds import NODES, PODS
from tests.chaos.simulate.telling import over


def test_a_gang_that_begins_on_a_node_that_has_just_joined_is_left_alone() -> None:
    """The controller sees the Node 8 s after the pods on it."""

    async def story(sim: Simulation) -> None:
        await sim.crash_node("n3")
        await sim.passes(60)
        await sim.person.remove_node("n3")
        await sim.passes(30)
        sim.client.disturbance.lag_of_s[NODES] = 8.0
        sim.client.disturbance.drop_watches()
        await sim.passes(30)
        gang = await sim.submit(Job(ranks=3))
        await sim.passes(20)
        await sim.boot_node("n3")
        await sim.passes(200)
        assert sim.recoveries() == []
        assert gang.step > 30, "it trains"

    play(story, Setup(nodes=3))


@pytest.mark.parametrize("nodes", [5, 2])
def test_a_scheduler_that_has_not_seen_the_cordon_yet_puts_no_gang_on_the_dead_gpu_for_good(
    nodes: int,
) -> None:
    """On two nodes there is no other place, and the gang waits for one."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(65)
        sim.cluster.scheduler.nodes_stand_still()
        sim.kernel("n2", FALLEN_OFF_THE_BUS)
        await sim.passes(15)
        sim.cluster.scheduler.nodes_go_on()
        await sim.passes(120)
        if nodes == 2:
            assert sim.recovery_is(Phase.BLOCKED)
            return
        assert sim.recovery_is(Phase.SUCCEEDED)
        assert sim.recovery().status.uncounted
        assert "n2" not in {pod["spec"]["nodeName"] for pod in sim.pods()}

    play(story, Setup(nodes=nodes))


def test_a_node_that_is_really_gone_costs_its_gang_no_more_than_a_live_read() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.person.remove_node("n2")
        await sim.until(lambda: bool(sim.recoveries()), within_s=5)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=600)

    play(story)


def test_no_gang_is_started_over_a_pod_that_the_watch_has_not_shown_yet() -> None:
    """The Job controller replaces the only rank 10 s after it failed. Rekindle sees the failure 2 s later. It
    sees the replacement, whose node has died meanwhile, only after the gang could have been started."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(kind=Kind.JOB, ranks=1))
        await sim.passes(65)
        sim.client.disturbance.lag_of_s[PODS] = 12.0
        sim.client.disturbance.drop_watches()
        await sim.passes(60)
        sim.crash_rank(0, Exit(1))
        await sim.passes(11)
        (replaced,) = (pod for pod in sim.pods() if pod["status"].get("phase") != "Failed")
        node = replaced["spec"]["nodeName"]
        await sim.crash_node(node)
        await sim.passes(60)
        await sim.boot_node(node)
        await sim.until(lambda: over(sim), within_s=900)
        assert sim.recovery_is(Phase.SUCCEEDED)

    play(story)


@pytest.mark.parametrize("kind", [Kind.PYTORCHJOB, Kind.JOB])
def test_a_rank_whose_deletion_the_watch_never_announced_costs_one_restart_of_its_gang(kind: Kind) -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(kind=kind, ranks=3))
        await sim.passes(65)
        name = sim.pods()[1]["metadata"]["name"]
        await sim.cluster.client(PERSON).delete(PODS, name, namespace=NAMESPACE, grace_s=0)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=300)
        await sim.passes(300)
        assert len(sim.recoveries()) == 1

    play(story)


@pytest.mark.parametrize("lead_s", [-300.0, 0.0, 300.0])
def test_a_rank_that_a_new_list_lacks_costs_one_restart_of_its_gang_whatever_its_nodes_clock_says(
    lead_s: float,
) -> None:
    """The watch of pods breaks, and the API server no longer has the changes that the watch has missed."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=3))
        await sim.passes(65)
        sim.client.disturbance.lag_of_s[PODS] = 20.0
        sim.client.disturbance.drop_watches()
        name = sim.pods()[1]["metadata"]["name"]
        await sim.cluster.client(PERSON).delete(PODS, name, namespace=NAMESPACE, grace_s=0)
        await sim.passes(19)
        sim.cluster.store.history(PODS).forget()
        del sim.client.disturbance.lag_of_s[PODS]
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        await sim.passes(300)
        assert len(sim.recoveries()) == 1

    names = Setup().names
    play(story, Setup(clock_leads_s=dict.fromkeys(names, lead_s)))
