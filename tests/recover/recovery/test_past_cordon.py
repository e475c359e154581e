"""A gang that a late scheduler has put on a node which was already quarantined is placed again, if that harms
nobody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Remedy, Severity
from recover.api import Phase, RecoveryStatus
from recover.model import Quarantine
from recover.model.modes import Mode
from recover.model.pause import Pause
from recover.recovery.past_cordon import STARTS_MAX
from tests.acting import first_step, look, only_recovery, start_pods, step
from tests.builders import Worlds
from tests.facts import names
from tests.recover.recovery.phase_cases import faulted
from tests.recover.recovery.test_again import started
from tests.recover.triage.test_capacity import GPU, template

STOPPED = ["recovery-stopping"]


def status(world: Worlds) -> RecoveryStatus:
    return only_recovery(world).status


def closed(world: Worlds, node: str = "n4", *, ago_s: float = 20.0) -> Worlds:
    at = world.now - timedelta(seconds=ago_s)
    note = Quarantine(incident="i", fault="device-lost", at=at, cordoned=True)
    return world.change_node(node, quarantine=note, unschedulable=True)


def placed(
    *, severity: Severity = Severity.FATAL, remedy: Remedy = Remedy.NONE, ago_s: float = 20.0
) -> Worlds:
    """Returns a gang all of whose new ranks run, the first of them on n4. Rekindle has cordoned n4 for an
    open fault `ago_s` seconds before the ranks were created."""
    world = started(faulted())
    start_pods(world.later(1))
    closed(world.finding(on="n4", ago_s=25, severity=severity, remedy=remedy), ago_s=ago_s)
    step(world)
    assert status(world).phase is Phase.VERIFYING
    return world


@pytest.mark.parametrize("trains", [False, True])
def test_it_is_placed_again_before_the_recovery_can_end(trains: bool) -> None:
    """The scheduler's watch of the nodes may lag for seconds, for example after an outage of the API
    server."""
    world = placed()
    if trains:
        first_step(world, 101)

    assert step(world) == STOPPED
    assert (status(world).attempt, status(world).uncounted) == (2, [1])
    assert names(status(world).message, "llm-worker-0", "n4", "xid-79")


def test_the_next_tries_wait_longer_and_end_and_meanwhile_no_success_is_reported() -> None:
    """If the template itself puts the rank there, for example by nodeName, no further start helps."""
    world, waited = placed(), []
    for _ in range(STARTS_MAX):
        began = world.now
        while step(world) != STOPPED:
            first_step(world, 101)
            assert status(world).phase is Phase.VERIFYING
            world.later(look(world).requeue_after_s or 1)
        waited.append(round((world.now - began).total_seconds()))
        started(world)
        start_pods(world.later(1))
        step(world)
    first_step(world, 101)
    step(world)

    assert waited == [0, 9, 19]
    assert status(world).phase is Phase.SUCCEEDED
    assert len(status(world).uncounted) == STARTS_MAX


def _without_devices(world: Worlds) -> None:
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        if pod.node == "n4":
            pods[uid] = msgspec.structs.replace(pod, accelerators=0)


def _fault_ended(world: Worlds) -> None:
    health = world.health["n4"]
    told = msgspec.structs.replace(health.status, findings=[])
    world.health["n4"] = msgspec.structs.replace(health, status=told)


def _no_other_place(world: Worlds) -> None:
    world.change_gang(templates={"Worker": template()})
    for name in world.nodes:
        is_open = name in ("n5", "n6", "n7")
        world.change_node(name, allocatable={GPU: 8}, capacity={GPU: 8}, unschedulable=not is_open)


def _pause(world: Worlds) -> None:
    world.paused = Pause(since=world.now, reason="new switches")


def _observe(world: Worlds) -> None:
    world.mode = Mode.OBSERVE


HARMS: dict[str, Callable[[Worlds], object]] = {
    "the fault has ended": _fault_ended,
    "a person has uncordoned the node": lambda world: world.change_node("n4", unschedulable=False),
    "Rekindle is paused": _pause,
    "the mode is observe": _observe,
    "there is a hold": lambda world: world.change_gang(annotations={"rekindle.dev/hold": "debugging"}),
    "consent was withdrawn": lambda world: world.change_gang(
        labels={"rekindle.dev/auto-recovery": "disabled"}
    ),
    "a rank has completed": lambda world: world.change_gang(done_ranks="2"),
    "the rank there holds no device": _without_devices,
    "the ranks fit nowhere else": _no_other_place,
    "it has run for minutes": lambda world: world.later(121),
}


@pytest.mark.parametrize("why", HARMS)
def test_a_gang_that_trains_is_left_where_it_is_if(why: str) -> None:
    world = placed()
    HARMS[why](world)
    first_step(world, 101)

    step(world)

    assert status(world).phase is Phase.SUCCEEDED


def test_a_degraded_node_and_a_later_quarantine_are_no_reasons() -> None:
    for world in (
        placed(severity=Severity.PENDING, remedy=Remedy.DRAIN_AND_RESET),
        placed(ago_s=-2.0),
    ):
        first_step(world, 101)
        step(world)
        assert status(world).phase is Phase.SUCCEEDED


def test_a_rank_that_was_lost_counts_as_always() -> None:
    world = placed()
    world.later(3).crash(rank=1, ago_s=1)

    assert step(world) != STOPPED
    assert status(world).uncounted == []


def test_a_pause_that_begins_after_the_decision_leaves_the_gang_running() -> None:
    world = placed()
    assert step(world) == STOPPED
    _pause(world)

    assert "stop-gang" not in step(world)
