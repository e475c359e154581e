"""Containers of another namespace print step lines on a gang's nodes. The tests use real agents and the
real plan."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest

from detectors.folds.core import AgentCore
from detectors.folds.holders import Given, HeldDevices
from detectors.folds.status_size import bounded
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import (
    PODS_MAX,
    CoverageState,
    DevicePod,
    Fault,
    NodeHealthSpec,
    ObjectMeta,
    Source,
)
from detectors.wire.training import Edge, PodProgress, PodSettings
from recover.api import Phase, Recovery, RecoverySpec, RecoveryStatus
from recover.model import Pod
from tests.builders import BOOT, NOW, Worlds, cluster, gang
from tests.facts import names

BORN = NOW - timedelta(hours=1)
CROWD = 66


def trained_before(world: Worlds) -> Worlds:
    ref = world.gangs["llm-uid"].ref
    spec = RecoverySpec(gang=ref, number=1, incident="old", fault=Fault.DEVICE_LOST, detected_at=NOW)
    ended = RecoveryStatus(phase=Phase.SUCCEEDED, last_step=120, resumed_step=101)
    meta = ObjectMeta(name="first", namespace="ml", creation_timestamp=NOW - timedelta(hours=9))
    world.recoveries["ml/first"] = Recovery(metadata=meta, spec=spec, status=ended)
    return world


def agent_of(pod: Pod, *, shows_holders: bool = True) -> AgentCore:
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    for source in (Source.KMSG, Source.LOGS):
        core.cover(source, CoverageState.COVERED, BORN - timedelta(hours=1))
    if shows_holders:
        place = DevicePod(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        given = Given(pod.namespace, pod.name, {"nvidia.com/gpu": ["GPU-1"]})
        core.pods_listed([HeldDevices(place, given)], frozenset({pod.uid}))
    return core


def trains(core: AgentCore, pod: Pod) -> None:
    ref = PodRef(pod.namespace, pod.name, pod.uid, "train", 0)
    for step in range(1, 4):
        core.log_line(ref, f"step: {step} loss: 2.5", BORN + timedelta(seconds=step))


def crowd(
    core: AgentCore, at_s: float = 60.0, *, name: str = "crowd", seconds: Iterable[int] = (1, 2)
) -> None:
    for number in range(CROWD):
        ref = PodRef("others", name, f"{name}-uid", f"c{number}", 0)
        for step in seconds:
            core.log_line(ref, f"step: {step} loss: 2.5", BORN + timedelta(seconds=at_s + step))


def published(world: Worlds, cores: dict[str, AgentCore]) -> Worlds:
    for node, core in cores.items():
        status = bounded(core.status(world.now), priority_uids=core.priority_pods)
        world.health[node] = msgspec.structs.replace(world.health[node], status=status)
    return world


def ranks(world: Worlds) -> dict[str, Pod]:
    return {pod.node: pod for pod in world.pods["llm-uid"].values()}


@pytest.mark.parametrize("shows_holders", [True, False])
def test_a_crowd_of_step_printers_stops_no_gang_that_trains(shows_holders: bool) -> None:
    world = trained_before(cluster().running(gang(), stepping=False))
    cores = {}
    for node, pod in ranks(world).items():
        cores[node] = agent_of(pod, shows_holders=shows_holders)
        trains(cores[node], pod)
        crowd(cores[node])

    decision = published(world, cores).decide()

    assert decision.incidents == []
    assert decision.restarts == []


def test_a_gang_that_hangs_behind_a_crowd_is_restarted_as_its_agents_tell_that_they_leave_none_out() -> None:
    world = trained_before(cluster().running(gang(), stepping=False))
    cores = {}
    for node, pod in ranks(world).items():
        cores[node] = agent_of(pod)
        cores[node].log_line(PodRef(pod.namespace, pod.name, pod.uid, "train", 0), "loading", BORN)
        crowd(cores[node])

    assert published(world, cores).decide().restarts == ["llm"]


def test_ranks_that_no_agent_knows_to_hold_devices_are_named_in_a_crowd_and_then_judged() -> None:
    world = trained_before(cluster().running(gang(), stepping=False))
    cores = {}
    for node, pod in ranks(world).items():
        cores[node] = agent_of(pod, shows_holders=False)
        crowd(cores[node])
    before = published(world, cores).decide()
    for node, pod in ranks(world).items():
        cores[node].spec(NodeHealthSpec(pods=[PodSettings(uid=pod.uid)]))

    assert before.restarts == []
    assert published(world, cores).decide().restarts == ["llm"]


def full(world: Worlds, node: str) -> Worlds:
    """Fills the list of the node's agent. This agent is of an older version, and does not report that it
    read more pods."""
    strangers = [
        PodProgress(uid=f"u{n}", namespace="others", name=f"p{n}", edge=Edge.STEPPING, at=NOW)
        for n in range(PODS_MAX - len(world.health[node].status.pods))
    ]
    status = world.health[node].status
    status = msgspec.structs.replace(status, pods=[*status.pods, *strangers])
    world.health[node] = msgspec.structs.replace(world.health[node], status=status)
    return world


def test_a_rank_that_misses_in_a_list_without_room_may_train_so_its_gang_is_told_of_and_left_alone() -> None:
    world = full(trained_before(cluster().running(gang(), stepping=False)), "n1")

    decision = world.decide()

    assert decision.restarts == []
    assert decision.incident.spec.fault is Fault.HANG
    assert names(decision.incident.status.summary, "n1")


def test_ranks_that_stall_stop_no_gang_while_another_may_go_on_behind_a_crowd() -> None:
    world = cluster().running(gang(), stepping=False)
    for node, pod in ranks(world).items():
        if node != "n1":
            world.progress(pod, Edge.STALLED, at=NOW - timedelta(seconds=5))

    decision = full(world, "n1").decide()

    assert decision.restarts == []
    assert decision.incident.spec.fault is Fault.HANG
    assert names(decision.incident.status.summary, "n1")


def test_a_gang_whose_stall_is_known_only_later_is_restarted_then_and_its_incident_says_so() -> None:
    world = cluster().running(gang(), stepping=False)
    for node, pod in ranks(world).items():
        if node != "n1":
            world.progress(pod, Edge.STALLED, at=NOW - timedelta(seconds=5))
    quiet = world.health["n1"]
    told = full(world, "n1").decide().incident
    world.incidents[told.metadata.name] = told
    world.health["n1"] = quiet

    decision = world.decide()

    assert decision.restarts == ["llm"]


def test_a_full_list_takes_nothing_from_a_rank_that_stands_in_it() -> None:
    assert full(cluster().running(gang()).stall(), "n1").decide().restarts == ["llm"]
