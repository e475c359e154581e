"""A gang that has to leave a degraded node: the controller asks the agents for the gang's next checkpoint,
and moves the gang then."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from detectors.wire.contract import Fault, Severity
from detectors.wire.training import PodSettings
from recover.api import Phase, PhaseTime
from recover.k8s.kinds import NODEHEALTHS
from recover.model.actions import Patch
from recover.triage.nodehealths import upkeep
from tests.acting import recovering
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.repair.scene import pending

LONG_AGO = NOW - timedelta(hours=9)


def degraded(on: str = "n1", *, ranks: int = 4, tells: int | None = 0, opted_in: bool = True) -> Worlds:
    """Returns a gang on n0 to n3 of twelve nodes, and the Incident of its degraded node. The log of the
    rank `tells` has shown complete checkpoints."""
    world = cluster(12).running(gang(ranks=ranks, opted_in=opted_in))
    if tells is not None:
        world.tells(rank=tells, step=90, at=LONG_AGO)
    world.finding(on=on, code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    recovering(world)
    assert world.nodes[on].quarantine is not None
    return world.later(30)


def asked(world: Worlds) -> dict[str, str]:
    """Returns pod -> the wait for a checkpoint that the controller requests from the pod's agent. Also
    applies the specs that the controller wants."""
    for write in upkeep(world.world()).actions:
        assert isinstance(write, Patch)
        assert write.resource == NODEHEALTHS
        pods = msgspec.convert(write.body["spec"]["pods"], list[PodSettings])
        health = world.health[write.name]
        spec = msgspec.structs.replace(health.spec, pods=pods)
        world.health[write.name] = msgspec.structs.replace(health, spec=spec)
    told = (settings for health in world.health.values() for settings in health.spec.pods)
    return {settings.uid: settings.awaits_save for settings in told if settings.awaits_save}


def why(world: Worlds) -> str:
    (incident,) = recovering(world).incidents.values()
    (record,) = [r for r in incident.status.actions if r.action == "restart-gang"]
    return record.message


def test_a_gang_on_a_degraded_node_is_moved_as_soon_as_its_next_checkpoint_is_complete() -> None:
    world = degraded()
    ((pod, wait),) = asked(world).items()
    assert pod == "llm-0-uid"
    assert world.decide().restarts == []

    world.later(200).tells(served=wait, step=190, at=LONG_AGO)

    assert world.decide().restarts == ["llm"]


def test_a_gang_is_not_moved_for_a_checkpoint_of_another_wait_or_of_before() -> None:
    world = degraded()
    asked(world)

    world.tells(served="another wait", at=world.now - timedelta(seconds=5))

    assert world.decide().restarts == []


def test_the_grace_is_the_upper_bound_for_a_gang_that_saves_no_more() -> None:
    world = degraded()
    asked(world)

    assert world.later(world.settings.timing.checkpoint_grace_s).decide().restarts == ["llm"]


@pytest.mark.parametrize("tells", [0, None])
def test_the_incident_says_for_what_the_gang_waits(tells: int | None) -> None:
    message = why(degraded(tells=tells))

    assert names(message, "12:30:00", "checkpoint_grace_s")
    assert ("rekindle.dev/checkpoint-on-sigterm" in message) is (tells is None)


def test_agents_are_asked_only_of_pods_that_have_told_of_checkpoints_and_first_on_the_degraded_node() -> None:
    assert asked(degraded(tells=None)) == {}, "an older agent tells of none"
    assert asked(degraded(opted_in=False)) == {}

    world = degraded(on="n7", ranks=8)
    for rank in range(8):
        world.tells(rank=rank, at=LONG_AGO)

    assert sorted(asked(world)) == ["llm-0-uid", "llm-1-uid", "llm-2-uid", "llm-7-uid"]


def test_a_gang_without_a_degraded_node_is_asked_for_nothing_and_upkeep_writes_nothing() -> None:
    world = cluster(4).running(gang()).tells(at=LONG_AGO)
    asked(world)

    assert upkeep(world.world()).actions == ()
    assert asked(world) == {}


def test_the_agents_are_told_once_and_the_wait_ends_with_the_move() -> None:
    world = degraded()
    wait = asked(world)["llm-0-uid"]
    assert upkeep(world.world()).actions == ()

    recovering(world.tells(at=LONG_AGO, served=wait))
    assert len(world.recoveries) == 1

    assert asked(world) == {}


def test_a_gang_that_saves_every_step_and_comes_back_to_the_degraded_node_is_moved_once() -> None:
    """The scheduler may have no other place for the gang, and the fault occurs again and again."""
    world = degraded()
    recovering(world.tells(at=LONG_AGO, served=asked(world)["llm-0-uid"]))
    assert len(world.recoveries) == 1
    (key, recovery) = world.recoveries.popitem()
    resumed = PhaseTime(phase=Phase.RESUMING, attempt=1, at=world.now + timedelta(seconds=60))
    over = msgspec.structs.replace(recovery.status, phase=Phase.SUCCEEDED, phases=[resumed])
    world.recoveries[key] = msgspec.structs.replace(recovery, status=over)
    world.later(3600)
    pods = world.pods["llm-uid"]
    for uid, pod in list(pods.items()):
        pods[uid] = msgspec.structs.replace(pod, created=world.now)
    world.later(60)
    world.finding(on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)

    world.tells(at=LONG_AGO, served=asked(world).get("llm-0-uid", ""))

    assert world.decide().restarts == []


def test_a_gang_that_comes_to_a_degraded_node_is_asked_for_a_checkpoint_of_its_own() -> None:
    """A checkpoint that was complete before the gang came to this node does not count."""
    world = degraded(tells=2)
    wait = asked(world)["llm-2-uid"]
    world.tells(rank=2, at=LONG_AGO, served=wait)
    pods = world.pods["llm-uid"]
    came = msgspec.structs.replace(pods.pop("llm-1-uid"), uid="llm-1-again", created=world.now)
    pods[came.uid] = came

    assert world.decide().restarts == []
    assert asked(world)["llm-2-uid"] != wait


def test_a_repair_waits_for_the_next_checkpoint_of_the_gangs_on_its_node() -> None:
    scene = pending()
    scene.world.tells(rank=1, at=LONG_AGO)
    scene.settle()
    assert scene.world.recoveries == {}
    (wait,) = asked(scene.world).values()

    scene.later(60)
    scene.world.tells(rank=1, at=LONG_AGO, served=wait)
    scene.settle()

    (recovery,) = scene.world.recoveries.values()
    assert recovery.spec.gang.name == "llm"


@pytest.mark.parametrize(("tells", "moved_within_s"), [(True, 90.0), (False, 1900.0)])
def test_a_gang_is_moved_at_its_next_checkpoint_or_when_the_grace_is_over(
    tells: bool, moved_within_s: float
) -> None:
    """The agents themselves read the log. The gang saves every 50 s."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=3, scanned=tells))
        await sim.passes(900)
        began = sim.clock.now()
        sim.kernel("n2", lines.CONTAINED)
        await sim.until(lambda: bool(sim.recoveries()), moved_within_s)
        took_s = (sim.clock.now() - began).total_seconds()
        assert tells or took_s > sim.settings.timing.checkpoint_grace_s - 10

    play(story, Setup(nodes=6))
